package tasks

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWaitIsForAll: Wait returns when all have ended, those that others have begun included.
func TestWaitIsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		var ended atomic.Int64
		for range 3 {
			g.Go(func() {
				time.Sleep(time.Second)
				g.Go(func() {
					time.Sleep(time.Second)
					ended.Add(1)
				})
			})
		}
		for range 2 { // a second one finds nothing to wait for
			g.Wait()
			if n := ended.Load(); n != 3 {
				t.Fatalf("%d of 3 have ended", n)
			}
		}
	})
}

// TestBeginWhileSomebodyWaits: what begins at the moment at which another waits for the end is no race; the race detector looks at that.
func TestBeginWhileSomebodyWaits(t *testing.T) {
	for range 1000 {
		var g Group
		var ended atomic.Bool
		waited := make(chan struct{})
		go func() { g.Wait(); close(waited) }()
		g.Go(func() { ended.Store(true) })
		<-waited
		g.Wait()
		if !ended.Load() {
			t.Fatal("it is still under way")
		}
	}
}
