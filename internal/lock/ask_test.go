package lock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// TestSilentRedisAsksNobodyToStay: before Redis has said what it can do, a LOCK ends with its client and with its BLOCK, far before
// the time for an answer is over.
func TestSilentRedisAsksNobodyToStay(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		s.Stop()
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		first, _ := client(m)
		second, _ := client(m)
		third, _ := client(m)
		began := time.Now()
		ctx, gone := context.WithCancel(t.Context())
		left := make(chan error, 2)
		for _, c := range []*Client{first, second} {
			go func() {
				_, err := c.Lock(ctx, Request{Key: "k", Blocks: true})
				left <- err
			}()
		}
		_, err := third.Lock(t.Context(), Request{Key: "k", Blocks: true, Block: 50})
		if !errors.Is(err, lockstore.ErrUntold) || !lockstore.NotSent(err) {
			t.Error(err)
		}
		gone()
		for range 2 {
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("they stayed for %v", took)
		}
		s.Cont()
		granted(t, locking(third, Request{Key: "k", Blocks: true}), "when Redis is back")
	})
}

// TestWithdrawnRightIsKnownBeforeTheNextLock: a script that Redis refuses for want of a right has the next LOCK ask first.
func TestWithdrawnRightIsKnownBeforeTheNextLock(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	s.Do(t, "ACL", "SETUSER", "svc", "on", ">pw", "~*", "&*", "+@all")
	ctl := upstream.NewControl(upstream.Target{Network: "tcp", Addr: s.Addr(), User: "svc", Password: "pw"}, upstream.ControlOptions{Logger: testLog(), DialTimeout: 10 * time.Second})
	m := atWork(t, New(sharded.Single(ctl), ManagerOptions{Logger: testLog()}), ctl.Close)
	a, _ := client(m)
	for _, right := range []string{"publish", "del"} {
		mustLock(t, a, Request{Key: "k"})
		s.Do(t, "ACL", "SETUSER", "svc", "-"+right)
		if _, err := a.Unlock(t.Context(), UnlockRequest{Key: "k"}); err == nil {
			t.Fatal("it was given back without", right)
		}
		if _, err := a.Lock(t.Context(), Request{Key: "other"}); err == nil || !strings.HasPrefix(err.Error(), "NOPERM ") || s.Do(t, "EXISTS", "other").(int64) != 0 {
			t.Errorf("without %s: %v", right, err)
		}
		s.Do(t, "ACL", "SETUSER", "svc", "+"+right)
		eventually(t, 30*time.Second, "allowed", func() bool { return m.store.Admit(t.Context(), "k", 0) == nil })
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
	}
}
