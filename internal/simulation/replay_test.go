//go:build !race

package simulation

import (
	"strings"
	"testing"
	"time"
)

const (
	// plays is how often a seed may be played until it comes out as before.
	plays = 3
	// mayDiffer: one in so many of the combinations may never do so. About one seed in fifty comes out in one of two ways, see README.md.
	mayDiffer = 6
)

// A seed is played again exactly: every call at the same nanosecond, with the same reply at the same nanosecond. The race detector has
// goroutines take turns by chance, so this test is not for it.
func TestReplay(t *testing.T) {
	played, differ := 0, 0
	for i, c := range combinations() {
		if !long && i%3 != 0 {
			continue // every third: each kind of store is among them
		}
		played++
		s := *seed + uint64(1000+i)
		first := play(t, c, s, 20*time.Second, watched{commands: true})
		same := false
		for n := 0; n < plays && !same; n++ {
			second := play(t, c, s, 20*time.Second, watched{commands: true})
			if same = first.log() == second.log(); same {
				continue
			}
			inA, inB, _ := firstDifference(first.log(), second.log())
			t.Logf("%s on %s, seed %d, is not the same when it is played again:\n%s\n%s", c.p.name, c.s.name, s, inA, inB)
			inA, inB, line := firstDifference(first.commands.String(), second.commands.String())
			before := strings.Split(first.commands.String(), "\n")[max(0, line-4):line]
			t.Logf("%s\n%s\n%s", strings.Join(before, "\n"), inA, inB)
		}
		if !same {
			differ++
		}
	}
	if differ > played/mayDiffer {
		t.Errorf("%d of %d seeds are never the same when they are played again", differ, played)
	}
}

// firstDifference are the first lines that differ.
func firstDifference(a, b string) (inA, inB string, line int) {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return as[i], bs[i], i
		}
	}
	return "", "", min(len(as), len(bs))
}
