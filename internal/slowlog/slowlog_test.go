package slowlog

import (
	"fmt"
	"testing"
	"time"
)

// The last entries are kept, the newest comes first, and numbers go on.
func TestLog(t *testing.T) {
	var l Log
	for i := range Most + 5 {
		l.Add(Entry{Args: []string{fmt.Sprint(i)}})
	}
	if all := l.Latest(1 << 30); len(all) != Most || l.Len() != Most || all[0].ID != Most+4 || all[0].Args[0] != fmt.Sprint(Most+4) || all[Most-1].ID != 5 {
		t.Errorf("%d entries, %d; from %v to %v", len(all), l.Len(), all[0], all[len(all)-1])
	}
	if two := l.Latest(2); len(two) != 2 || two[0].ID != Most+4 || two[1].ID != Most+3 {
		t.Errorf("the last two are %v", two)
	}
	if none := l.Latest(0); len(none) != 0 {
		t.Errorf("the last none are %v", none)
	}
	l.Reset()
	l.Add(Entry{})
	if all := l.Latest(10); len(all) != 1 || all[0].ID != Most+5 {
		t.Errorf("after a reset: %v", all)
	}
}

// Of each second the first are taken, as many as are kept.
func TestTakes(t *testing.T) {
	var l Log
	second := time.Unix(1000, 0)
	takes := func(at time.Time) (n int) {
		for range 3 * Most {
			if l.Takes(at) {
				n++
			}
		}
		return n
	}
	if first, next := takes(second), takes(second.Add(time.Second)); first != Most || next != Most {
		t.Errorf("%d and %d are taken in two seconds, want %d", first, next, Most)
	}
	if l.Reset(); !l.Takes(second.Add(time.Second)) {
		t.Error("none is taken after a reset")
	}
}
