package downstream

import (
	"testing"
	"time"
)

// A client is closed at once above the hard limit, and above the soft one when it stays there.
func TestOutputLimit(t *testing.T) {
	t.Parallel()
	limit := OutputLimit{Hard: 100, Soft: 10, For: time.Minute}
	began := time.Now()
	var x excess
	for _, c := range []struct {
		after time.Duration
		limit OutputLimit
		held  int
		until time.Duration // after began; 0: never
		over  bool
	}{
		{0, OutputLimit{}, 1 << 40, 0, false},
		{0, limit, 10, 0, false},
		{time.Second, limit, 11, 61 * time.Second, false},
		{2 * time.Second, limit, 100, 61 * time.Second, false},
		{2 * time.Second, limit, 101, 61 * time.Second, true},
		{60 * time.Second, limit, 11, 61 * time.Second, false},
		{61 * time.Second, limit, 11, 61 * time.Second, true},
		{62 * time.Second, limit, 1, 0, false},
		{63 * time.Second, limit, 11, 123 * time.Second, false},
	} {
		until, over := x.judge(c.limit, c.held, began.Add(c.after))
		if over != c.over || until.IsZero() != (c.until == 0) || c.until > 0 && until.Sub(began) != c.until {
			t.Errorf("%+v: over: %v, until %v", c, over, until.Sub(began))
		}
	}
}

func TestEarlier(t *testing.T) {
	t.Parallel()
	never, soon, late := time.Time{}, time.Unix(1, 0), time.Unix(2, 0)
	for _, c := range [][3]time.Time{{never, never, never}, {never, soon, soon}, {soon, never, soon}, {soon, late, soon}, {late, soon, soon}} {
		if got := earlier(c[0], c[1]); got != c[2] {
			t.Errorf("of %v and %v: %v", c[0], c[1], got)
		}
	}
}
