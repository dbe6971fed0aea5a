package lock

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/upstream"
)

// outOfReach is a store whose reply to the first LOCK is lost, whom nobody can ask for some time then, and who gets no second LOCK.
type outOfReach struct {
	lockstore.Store
	asked   bool
	silence time.Duration
}

func (s *outOfReach) Acquire(ctx context.Context, a *lockstore.Acquire) (lockstore.Acquired, error) {
	if s.asked {
		return lockstore.Acquired{}, &upstream.NotSentError{Cause: context.DeadlineExceeded}
	}
	s.asked = true
	got, err := s.Store.Acquire(ctx, a)
	if err == nil {
		err = &upstream.LostError{Cause: context.DeadlineExceeded}
	}
	return lockstore.Acquired{Sent: got.Sent, NotAfter: got.NotAfter}, err
}

func (s *outOfReach) Look(id lockstore.ID, named bool, notAfter int64, until time.Time) (lockstore.Seen, error) {
	time.Sleep(s.silence)
	return s.Store.Look(id, named, notAfter, until)
}

// TestGrantThatRanOutUnheard: a LOCK that may have been granted, and has run out before Redis could be asked, is not said to have been
// without effect: it kept others out.
func TestGrantThatRanOutUnheard(t *testing.T) {
	for _, blocks := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world.World) {
			m := bubbleEngine(t, w, w.NewNode(bubbleAddr), "one", Options{})
			synctest.Wait() // the engine has begun, which reads its store
			m.store = &outOfReach{Store: m.store, silence: 2 * time.Second}
			a, _ := client(m)
			_, err := a.Lock(context.Background(), Request{Key: "k", Lease: 1000, Blocks: blocks, Block: 4000})
			if err == nil || !strings.Contains(err.Error(), "the reply to this LOCK was lost") {
				t.Error(err)
			}
		})
	}
}
