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
	c := (&Manager{}).NewClient(ClientInfo{Close: func(string) { closed++ }})
	lose := func(from, to int) {
		for i := range to - from {
			c.noteLoss(lockstore.ID{Key: fmt.Sprint("z", from+i)}, lossRecord{reasonGone, time.Now()})
		}
	}
	lose(0, heard)
	if closed != 0 {
		t.Errorf("closed after %d losses", heard)
	}
	for i := range heard {
		if _, ok := c.takeLoss(0, fmt.Sprint("z", i)); !ok {
			t.Fatalf("loss %d was forgotten", i)
		}
	}
	if c.untold != 0 {
		t.Errorf("%d bytes are still counted when all have been told", c.untold)
	}
	if lose(0, tooMany); closed == 0 {
		t.Errorf("not closed after %d losses", tooMany)
	}
}
