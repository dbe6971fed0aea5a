package lock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/agenda"
)

// A node that has left a cluster was away when it was renewed at last, and is not renewed again: what is known of it goes all the same.
func TestIdleLaneIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wd := &watchdog{lanes: map[laneKey]*lane{}}
		key := laneKey(new(int))
		ln := &lane{atOnce: 1, failed: 3, ended: time.Now(), open: map[chunkKey]*chunk{}}
		ln.queue = agenda.New(func(c *chunk) *int32 { return &c.inQueue })
		wd.lanes[key] = ln
		wd.startAll()
		if wd.lanes[key] == nil {
			t.Error("it is forgotten at once that the node was away")
		}
		time.Sleep(2 * laneKept)
		wd.startAll()
		if wd.lanes[key] != nil {
			t.Error("it is kept for ever")
		}
	})
}
