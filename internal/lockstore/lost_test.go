package lockstore

import (
	"fmt"
	"testing"
	"time"
)

// TestLost has what is done about each step whose reply was lost: for how long it is sent again, and what is done then.
func TestLost(t *testing.T) {
	held, named := Counts{Writes: 1}, ID{Key: "k", Owner: "job"}
	expiry := ExpiryAt(2)
	for _, c := range []struct {
		what, want string
		step       interface{ IfLost() Lost }
	}{
		{"LOCK of a connection", "again for 5s, then tell", &Acquire{ID: named, Counts: held}},
		{"LOCK of a named owner", "again for 5s, then leave", &Acquire{ID: named}},
		{"UNLOCK of a connection", "again for 5s, then tell", &Release{ID: named}},
		{"the same, which hands the lock on", "once, then alone", &Release{ID: named, Next: &Handoff{}}},
		{"UNLOCK of a named owner", "once, then look", &Release{ID: named, Named: true}},
		{"the same, which hands the lock on", "once, then look", &Release{ID: named, Named: true, Next: &Handoff{}}},
		{"a named owner's grant that nobody heard of, given back", "once, then leave", &Release{ID: named, Named: true, Expiry: expiry}},
		{"UNLOCK FORCE", "once, then visit", &Release{ID: ID{Key: "k"}}},
		{"RENEW of a connection", "again for 5s, then visit", Extension{ID: named, Counts: held}},
		{"RENEW of a named owner", "again for 5s, then leave", Extension{ID: named}},
		{"renewals of the watchdog", "once, then visit", Renewal{}},
	} {
		l := c.step.IfLost()
		got := fmt.Sprintf("again for %v, then %s", l.Again, l.Then)
		if l.Again == 0 {
			got = fmt.Sprintf("once, then %s", l.Then)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		if l.Again > 0 && l.Again < 2*time.Second {
			t.Errorf("%s: it is sent again for less time than a not-after takes", c.what)
		}
	}
}
