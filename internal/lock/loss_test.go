package lock

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// A connection that loses a great many locks hears of each of them, and is closed when it has more of them than one may leave unheard.
func TestUntoldLossesOfAConnection(t *testing.T) {
	const heard, tooMany = 17_000, 40_000
	closed := 0
	var u untold
	lose := func(from, to int) {
		for i := range to - from {
			if u.note(lockstore.ID{Key: fmt.Sprint("z", from+i)}, lossRecord{reasonGone, time.Now()}) {
				closed++
			}
		}
	}
	lose(0, heard)
	if closed != 0 {
		t.Errorf("closed after %d losses", heard)
	}
	for i := range heard {
		if _, ok := u.take(0, fmt.Sprint("z", i)); !ok {
			t.Fatalf("loss %d was forgotten", i)
		}
	}
	if u.bytes != 0 {
		t.Errorf("%d bytes are still counted when all have been told", u.bytes)
	}
	if lose(0, tooMany); closed == 0 {
		t.Errorf("not closed after %d losses", tooMany)
	}
}

// A connection that lets its leases run out, as one does that takes a lock for a time and never gives it back, is not closed for that, and what it
// has lost besides is told.
func TestLeasesThatRunOutCloseNobody(t *testing.T) {
	var u untold
	u.note(lockstore.ID{Key: "forced"}, lossRecord{reasonForced, time.Now()})
	for i := range 100_000 {
		if u.note(lockstore.ID{Key: fmt.Sprint("z", i)}, lossRecord{reasonExpired, time.Now()}) {
			t.Fatalf("%d bytes are remembered", u.bytes)
		}
	}
	if _, ok := u.take(0, "forced"); !ok {
		t.Error("a loss was forgotten beside leases that ran out")
	}
}
