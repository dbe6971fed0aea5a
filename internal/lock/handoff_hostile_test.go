package lock

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// An account that may not ask who listens can unlock all the same, where a lock is handed on for long.
func TestHandoffWithoutPubsub(t *testing.T) {
	s := testredis.Start(t)
	s.Do(t, "ACL", "SETUSER", "default", "-pubsub")
	m, n := engine(t, s.URL(), ManagerOptions{}), engine(t, s.URL(), ManagerOptions{})
	holder, _ := client(m)
	mustLock(t, holder, Request{Key: "k"})
	granted := make(chan error, 2)
	for _, e := range []*Manager{m, n} {
		c, _ := client(e)
		go func() {
			_, err := c.Lock(context.Background(), Request{Key: "k", Blocks: true})
			c.Close(Gone)
			granted <- err
		}()
	}
	eventually(t, 30*time.Second, "they wait", func() bool { return settledDown(m, "k") && settledDown(n, "k") })
	time.Sleep(handoffLongest)
	mustUnlock(t, holder, UnlockRequest{Key: "k"}, true)
	for range 2 {
		if err := <-granted; err != nil {
			t.Error(err)
		}
	}
}

// The account may not subscribe: each new head of a line is handed the lock all the same, and does not wait for a subscription first.
func TestHandoffWithoutSubscriptions(t *testing.T) {
	t.Parallel()
	const waiters, most = 15, 25 * time.Second // to wait for a subscription takes 2 s for each but the first
	single, tc := testredis.Start(t), testredis.StartCluster(t, 2, 0)
	for _, s := range append(tc.Servers, single) {
		s.Do(t, "ACL", "SETUSER", "default", "-subscribe", "-ssubscribe")
	}
	for name, m := range map[string]*Manager{"single": engine(t, single.URL(), ManagerOptions{}), "cluster": clusterEngine(t, tc, ManagerOptions{})} {
		holder, _ := client(m)
		mustLock(t, holder, Request{Key: "k"})
		var all sync.WaitGroup
		for range waiters {
			c, _ := client(m)
			all.Go(func() {
				if _, err := c.Lock(context.Background(), Request{Key: "k", Blocks: true}); err != nil {
					t.Error(err)
				}
				time.Sleep(20 * time.Millisecond) // for the next one to be the head
				c.Close(Gone)
			})
		}
		eventually(t, 30*time.Second, "all wait", func() bool { return m.lines.waitingAt(0, "k") == waiters })
		began := time.Now()
		mustUnlock(t, holder, UnlockRequest{Key: "k"}, true)
		if all.Wait(); time.Since(began) > most {
			t.Errorf("%s: %d waiters were given the lock in %v", name, waiters, time.Since(began))
		}
	}
}

// A reader that is over, and whose UNLOCK finds the lock's rest, leaves it to the next here.
func TestHandoffOfADeadRead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Poll: time.Minute})
		reader, _ := client(m)
		mustLock(t, reader, Request{Key: "k", Kind: Read, Lease: 60000})
		writer, _ := client(m)
		granted := make(chan error, 1)
		go func() {
			_, err := writer.Lock(context.Background(), Request{Key: "k", Kind: Write, Blocks: true})
			granted <- err
		}()
		eventually(t, 5*time.Second, "it waits", func() bool {
			m.lines.mu.Lock()
			defer m.lines.mu.Unlock()
			l := m.lines.byKey[lockstore.LineKey{Key: "k", Kind: Write}]
			return l != nil && l.waiters.Front().Value.(*waiter).state == parked
		})
		for _, key := range subKeys(t, s) {
			s.Do(t, "DEL", key)
		}
		if _, err := reader.Unlock(context.Background(), UnlockRequest{Key: "k"}); err == nil {
			t.Error("it was over")
		}
		select {
		case err := <-granted:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Error("nobody told the writer")
		}
		writer.Close(Gone)
	})
}
