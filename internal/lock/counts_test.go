package lock

import (
	"context"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// A failover has undone an UNLOCK of a connection that was in the lock twice: its last UNLOCK frees the lock.
func TestUnlockBehindALostUnlock(t *testing.T) {
	for _, kind := range lockstore.Kinds[:3] { // of a place Redis has no count
		inBubble(t, func(t *testing.T, w *world.World) {
			n := w.NewNode(bubbleAddr)
			m := bubbleEngine(t, w, n, "one", ManagerOptions{})
			a, told := client(m)
			mustLock(t, a, Request{Key: "k", Kind: kind})
			field := lockstore.ID{Key: "k", Owner: a.Owner(), Kind: kind}.Field()
			n.Do(t, "HINCRBY", "k", field, 1)
			mustUnlock(t, a, UnlockRequest{Key: "k", Side: kind}, true)
			if got := told.reasons(); got != "" || a.Held() != 0 || n.Do(t, "EXISTS", "k").(int64) != 0 {
				t.Errorf("%v: told %q, %d held", kind, got, a.Held())
			}
		})
	}
}

// A lock that a failed MULTILOCK had for a while, and that somebody deleted meanwhile, is none that its client has lost: the client never heard
// that it had it.
func TestFailedMultiLockLosesNothing(t *testing.T) {
	for _, owner := range []string{"", "job"} {
		inBubble(t, func(t *testing.T, w *world.World) {
			n := w.NewNode(bubbleAddr)
			m := bubbleEngine(t, w, n, "one", ManagerOptions{})
			a, told := client(m)
			heldByRedisson(t, n, "b")
			got := make(chan error)
			go func() {
				_, err := a.MultiLock(context.Background(), []string{"a", "b"}, Request{Owner: owner, Blocks: true, Block: 1000, Lease: 30_000})
				got <- err
			}()
			eventually(t, time.Minute, "a is taken", func() bool { return n.Do(t, "DEL", "a").(int64) == 1 })
			if err := <-got; err != ErrNotAcquired {
				t.Fatal(err)
			}
			_, err := a.Unlock(context.Background(), UnlockRequest{Key: "a", Owner: owner})
			wantCode(t, err, "NOTHELD")
			if got := told.reasons(); got != "" {
				t.Errorf("told %q", got)
			}
		})
	}
}

// A write lock that is left to run out, since an earlier command of its connection may still take effect, is not cut when that connection gives back a
// read lock beside it.
func TestWriterWithACommandUnderWayReads(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		n := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, n, "one", ManagerOptions{})
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k", Kind: Write})
		a.LeaveToExpire()
		_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k", Side: Write})
		wantCode(t, err, "ERR")
		mustLock(t, a, Request{Key: "k", Kind: Read, Self: true})
		_, err = a.Unlock(context.Background(), UnlockRequest{Key: "k", Side: Read})
		wantCode(t, err, "ERR")
		time.Sleep(20 * time.Second)
		b, _ := client(m)
		if _, err := b.Lock(context.Background(), Request{Key: "k"}); err != ErrNotAcquired && !isCode(err, "LOCKKIND") {
			t.Errorf("another one's LOCK is answered %v", err)
		}
		time.Sleep(11 * time.Second)
		mustLock(t, b, Request{Key: "k"})
	})
}

// Somebody has written a count that no lock has: two RENEWs at once, and a LOCK behind them, list the hold once.
func TestHoldOfACountOfNone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		n := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, n, "one", ManagerOptions{})
		n.Do(t, "HSET", "k", "o", "0")
		n.Do(t, "PEXPIRE", "k", 100000)
		got := make(chan error, 2)
		for range cap(got) {
			c, _ := client(m)
			go func() { got <- c.Renew(context.Background(), RenewRequest{Key: "k", Owner: "o", Lease: 60000}) }()
		}
		for range cap(got) {
			if err := <-got; err != nil {
				t.Error(err)
			}
		}
		if all := m.List("", ""); len(all) != 1 {
			t.Errorf("listed: %+v", all)
		}
		b, _ := client(m)
		mustLock(t, b, Request{Key: "k", Owner: "o", Lease: 30_000})
		mustUnlock(t, b, UnlockRequest{Key: "k", Owner: "o"}, true)
		if all := m.List("", ""); len(all) != 0 {
			t.Errorf("listed in the end: %+v", all)
		}
	})
}

// Somebody forces a lock of one kind, and the lock is taken as the other kind, before its holder's proxy hears of that: the holder is told what it
// lost, and it has what it takes then.
func TestForcedAndTakenAsAnotherKind(t *testing.T) {
	for _, was := range lockstore.Kinds {
		for _, is := range lockstore.Kinds {
			if (lockstore.ID{Kind: was}).Line() == (lockstore.ID{Kind: is}).Line() {
				continue
			}
			inBubble(t, func(t *testing.T, w *world.World) {
				n := w.NewNode(bubbleAddr)
				m, other := bubbleEngine(t, w, n, "one", ManagerOptions{}), bubbleEngine(t, w, n, "two", ManagerOptions{})
				a, told := client(m)
				b, _ := client(other)
				mustLock(t, a, Request{Key: "k", Kind: was})
				mustUnlock(t, b, UnlockRequest{Key: "k", Force: true}, true)
				mustLock(t, b, Request{Key: "k", Kind: is})
				_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k", Side: was})
				wantCode(t, err, "LOCKLOST")
				mustUnlock(t, b, UnlockRequest{Key: "k"}, true)

				mustLock(t, a, Request{Key: "k", Kind: was})
				mustUnlock(t, b, UnlockRequest{Key: "k", Force: true}, true)
				mustLock(t, a, Request{Key: "k", Kind: is})
				eventually(t, time.Minute, "told", func() bool { return told.reasons() == "k:gone k:gone " })
				wantCode(t, a.Renew(context.Background(), RenewRequest{Key: "k"}), "LOCKLOST") // it was not known yet when the lock was taken anew
				if err := a.Renew(context.Background(), RenewRequest{Key: "k"}); err != nil {
					t.Errorf("%v, then %v: RENEW is answered %v", was, is, err)
				}
				mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
				if got := told.reasons(); got != "k:gone k:gone " || a.Held() != 0 {
					t.Errorf("%v, then %v: told %q, %d held", was, is, got, a.Held())
				}
			})
		}
	}
}
