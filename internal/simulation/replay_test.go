package simulation

import (
	"strings"
	"testing"
	"time"
)

// A seed is played again exactly: every call at the same nanosecond, with the same reply at the same nanosecond. README.md tells when not.
func TestReplay(t *testing.T) {
	differ := 0
	all := combinations()
	for i, c := range all {
		s := *seed + uint64(1000+i)
		first, second := play(t, c, s, time.Minute, watched{commands: true}), play(t, c, s, time.Minute, watched{commands: true})
		a, b := first.log(), second.log()
		if a == b {
			continue
		}
		differ++
		inA, inB, _ := firstDifference(a, b)
		t.Logf("%s on %s, seed %d, is not the same when it is played again:\n%s\n%s", c.p.name, c.s.name, s, inA, inB)
		inA, inB, line := firstDifference(first.commands.String(), second.commands.String())
		before := strings.Split(first.commands.String(), "\n")[max(0, line-4):line]
		t.Logf("%s\n%s\n%s", strings.Join(before, "\n"), inA, inB)
	}
	t.Logf("%d of %d differ", differ, len(all))
	if differ > len(all)/3 { // goroutines that a fault wakes at one instant are not all in an order that can be repeated
		t.Errorf("%d of %d runs are not the same when they are played again", differ, len(all))
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
