package lock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/upstream"
)

// losesReply is a store that does a LOCK, and loses the reply to it, as often as it is told to.
type losesReply struct {
	lockstore.Store
	times int
}

func (s *losesReply) Acquire(ctx context.Context, a *lockstore.Acquire) (lockstore.Acquired, error) {
	got, err := s.Store.Acquire(ctx, a)
	if err == nil && s.times > 0 {
		s.times--
		return lockstore.Acquired{Sent: got.Sent, NotAfter: got.NotAfter}, &upstream.LostError{Cause: context.DeadlineExceeded}
	}
	return got, err
}

// TestReentryOfWhatHasGone: a connection that enters its lock again when that has gone is told of the loss and holds it once, whether the
// replies come or are lost, and whether somebody else had the lock meanwhile, or shares it now.
func TestReentryOfWhatHasGone(t *testing.T) {
	for name, r := range map[string]Request{
		"plain": {Key: "k"}, "fair": {Key: "k", Fair: true, Blocks: true}, "fenced": {Key: "k", Fence: true},
		"ends": {Key: "k", Lease: 20_000}, "reads": {Key: "k", Kind: Read}, "writes": {Key: "k", Kind: Write},
	} {
		for _, had := range []int{1, 2, 5} {
			for lost := range 3 {
				t.Run(name, func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) { reenterGone(t, w, r, had, lost) })
				})
			}
		}
	}
}

func reenterGone(t *testing.T, w *world.World, r Request, had, lost int) {
	s := w.NewNode(bubbleAddr)
	m := bubbleEngine(t, w, s, "one", Options{})
	synctest.Wait() // the engine has begun, which reads its store
	cut := &losesReply{Store: m.store}
	m.store = cut
	a, told := client(m)
	b, _ := client(bubbleEngine(t, w, s, "two", Options{}))
	for range had {
		mustLock(t, a, r)
	}
	s.Do(t, "DEL", "k")
	mustLock(t, b, r)
	if r.Kind != Read { // readers share it
		mustUnlock(t, b, UnlockRequest{Key: "k"}, true)
	}
	cut.times = lost
	if g := mustLock(t, a, r); !g.first || g.entered {
		t.Errorf("%d before, %d lost: %+v", had, lost, g)
	}
	if got := told.reasons(); got != "k:gone " {
		t.Errorf("%d before, %d lost: told %q", had, lost, got)
	}
	mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
	if held := m.Stats().Held; held != 0 {
		t.Errorf("%d before, %d lost: %d are believed held", had, lost, held)
	}
}

// TestReentryWithoutItsReply: so a connection that still has its lock is in it once more for each LOCK, however many replies are lost.
func TestReentryWithoutItsReply(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m := bubbleEngine(t, w, s, "one", Options{})
			synctest.Wait()
			cut := &losesReply{Store: m.store}
			m.store = cut
			a, told := client(m)
			for range 5 {
				cut.times = 1
				mustLock(t, a, Request{Key: "k", Kind: kind})
				time.Sleep(time.Second)
			}
			for left := 4; left >= 0; left-- {
				mustUnlock(t, a, UnlockRequest{Key: "k"}, left == 0)
			}
			if got := told.reasons(); got != "" {
				t.Errorf("%v: told %q", kind, got)
			}
		})
	}
}
