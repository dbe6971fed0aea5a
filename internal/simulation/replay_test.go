package simulation

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// inOneInstant are combinations in which goroutines that are woken in one instant reach Redis in an order that cannot be repeated
// for sure: README.md tells of it.
var inOneInstant = []string{"forgets cluster", "replies cluster", "duels single", "duels cluster", "wakeups single", "wakeups cluster"}

// plays is how often a seed may be played until it comes out as before. A machine that is busy can put off a goroutine that is
// ready, so that now and then one play is another one.
const plays = 4

// A seed is played again exactly: every call at the same nanosecond, with the same reply at the same nanosecond.
func TestReplay(t *testing.T) {
	for i, c := range combinations() {
		s := *seed + uint64(1000+i)
		first := play(t, c, s, time.Minute, watched{commands: true})
		same := false
		var second *result
		for n := 0; n < plays && !same; n++ {
			second = play(t, c, s, time.Minute, watched{commands: true})
			same = first.log() == second.log()
		}
		if same {
			continue
		}
		inA, inB, _ := firstDifference(first.log(), second.log())
		t.Logf("%s on %s, seed %d, is not the same when it is played again:\n%s\n%s", c.p.name, c.s.name, s, inA, inB)
		inA, inB, line := firstDifference(first.commands.String(), second.commands.String())
		before := strings.Split(first.commands.String(), "\n")[max(0, line-4):line]
		t.Logf("%s\n%s\n%s", strings.Join(before, "\n"), inA, inB)
		if !slices.Contains(inOneInstant, c.p.name+" "+c.s.name) {
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
