//go:build !race

package simulation

import (
	"strings"
	"testing"
	"time"
)

// plays is how often a seed may be played until it comes out as before: on a machine so busy that a goroutine is kept from its work for
// 10 ms, Go takes the processor from it, and another one goes first.
const plays = 3

// A seed is played again exactly: every call at the same nanosecond, with the same reply at the same nanosecond. The race detector has
// goroutines take turns by chance, so this test is not for it.
func TestReplay(t *testing.T) {
	for i, c := range combinations() {
		s := *seed + uint64(1000+i)
		first := play(t, c, s, time.Minute, watched{commands: true})
		differences := 0
		for ; differences < plays; differences++ {
			second := play(t, c, s, time.Minute, watched{commands: true})
			if first.log() == second.log() {
				break
			}
			inA, inB, _ := firstDifference(first.log(), second.log())
			t.Logf("%s on %s, seed %d, is not the same when it is played again:\n%s\n%s", c.p.name, c.s.name, s, inA, inB)
			inA, inB, line := firstDifference(first.commands.String(), second.commands.String())
			before := strings.Split(first.commands.String(), "\n")[max(0, line-4):line]
			t.Logf("%s\n%s\n%s", strings.Join(before, "\n"), inA, inB)
		}
		if differences == plays {
			t.Errorf("%s on %s, seed %d, is never the same when it is played again", c.p.name, c.s.name, s)
		}
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
