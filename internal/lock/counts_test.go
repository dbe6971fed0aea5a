package lock

import (
	"context"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// A failover has undone a LOCK of a connection that is in the lock twice: the UNLOCK that frees the lock says that it was lost, since its section
// within another one would go on without it.
func TestUnlockOfALostReentry(t *testing.T) {
	for _, kind := range []Kind{Plain, Read, Write} {
		inBubble(t, func(t *testing.T, w *world.World) {
			n := w.NewNode(bubbleAddr)
			m := bubbleEngine(t, w, n, "one", Options{})
			a, told := client(m)
			r := Request{Key: "k", Kind: kind, Self: true}
			for range 3 {
				mustLock(t, a, r)
			}
			field := lockstore.ID{Key: "k", Owner: a.Owner(), Kind: kind}.Field()
			n.Do(t, "HINCRBY", "k", field, -1)
			mustUnlock(t, a, UnlockRequest{Key: "k", Side: kind}, false)
			_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k", Side: kind})
			wantCode(t, err, "LOCKLOST")
			if got := told.reasons(); got != "k:gone " || a.Held() != 0 {
				t.Errorf("%v: told %q, %d held", kind, got, a.Held())
			}
			b, _ := client(m)
			mustLock(t, b, r)
		})
	}
}

// A failover has undone an UNLOCK of a connection that was in the lock twice: its last UNLOCK frees the lock.
func TestUnlockBehindALostUnlock(t *testing.T) {
	for _, kind := range []Kind{Plain, Read, Write} {
		inBubble(t, func(t *testing.T, w *world.World) {
			n := w.NewNode(bubbleAddr)
			m := bubbleEngine(t, w, n, "one", Options{})
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
			m := bubbleEngine(t, w, n, "one", Options{})
			a, told := client(m)
			heldByRedisson(t, n, "b")
			got := make(chan error)
			go func() {
				_, err := a.MultiLock(context.Background(), []string{"a", "b"}, Request{Owner: owner, Blocks: true, Block: 1000})
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

// A connection that writes with a lease of its own, has read meanwhile, and has given the read lock back, ends with the lease of its write lock.
func TestWriteLeaseAfterAReadOfItsOwn(t *testing.T) {
	for _, read := range []int64{0, 3600000} {
		for _, back := range []time.Duration{2 * time.Second, 10 * time.Second} { // within the write lock's lease, and behind it
			inBubble(t, func(t *testing.T, w *world.World) {
				n := w.NewNode(bubbleAddr)
				m := bubbleEngine(t, w, n, "one", Options{})
				a, told := client(m)
				mustLock(t, a, Request{Key: "k", Kind: Write, Lease: 5000})
				mustLock(t, a, Request{Key: "k", Kind: Read, Lease: read, Self: true})
				time.Sleep(back)
				mustUnlock(t, a, UnlockRequest{Key: "k", Side: Read}, true)
				if left := pttl(t, n, "k"); left > max(1, 5000-back.Milliseconds()) {
					t.Errorf("read for %d ms, given back after %v: %d ms are left", read, back, left)
				}
				time.Sleep(4 * time.Second)
				b, _ := client(m)
				mustLock(t, b, Request{Key: "k", Kind: Write})
				if got := told.reasons(); got != "k:expired " {
					t.Errorf("told %q", got)
				}
			})
		}
	}
}

// The write lock of a connection that reads beside it ends with its own lease, also if that was set meanwhile, and when the read lock was that of a
// MULTILOCK which failed.
func TestWriteLeaseSetWhileItReads(t *testing.T) {
	for name, during := range map[string]func(t *testing.T, a *Client){
		"RENEW": func(t *testing.T, a *Client) {
			mustLock(t, a, Request{Key: "k", Kind: Read, Lease: 3600000, Self: true})
			if err := a.Renew(context.Background(), RenewRequest{Key: "k", Side: Write, Lease: 5000}); err != nil {
				t.Error(err)
			}
			mustUnlock(t, a, UnlockRequest{Key: "k", Side: Read}, true)
		},
		"WLOCK": func(t *testing.T, a *Client) {
			mustLock(t, a, Request{Key: "k", Kind: Read, Lease: 3600000, Self: true})
			mustLock(t, a, Request{Key: "k", Kind: Write, Lease: 5000, Self: true})
			mustUnlock(t, a, UnlockRequest{Key: "k", Side: Read}, true)
		},
		"MULTILOCK": func(t *testing.T, a *Client) {
			_, err := a.MultiLock(context.Background(), []string{"k", "z"}, Request{Kind: Read, Lease: 3600000, Self: true})
			if err != ErrNotAcquired {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				n := w.NewNode(bubbleAddr)
				m := bubbleEngine(t, w, n, "one", Options{})
				a, told := client(m)
				heldByRedisson(t, n, "z")
				n.Do(t, "HSET", "z", "mode", "write")
				mustLock(t, a, Request{Key: "k", Kind: Write, Lease: 5000})
				during(t, a)
				time.Sleep(time.Second)
				if left := pttl(t, n, "k"); left > 4000 || left < 3500 {
					t.Errorf("%d ms are left", left)
				}
				time.Sleep(5 * time.Second)
				b, _ := client(m)
				mustLock(t, b, Request{Key: "k", Kind: Write})
				if got := told.reasons(); got != "k:expired " {
					t.Errorf("told %q", got)
				}
			})
		})
	}
}

// A write lock that is left to run out, since an earlier command of its connection may still take effect, is not cut when that connection gives back a
// read lock beside it.
func TestDoubtfulWriterThatReads(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		n := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, n, "one", Options{})
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k", Kind: Write})
		a.Doubt()
		_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k", Side: Write})
		wantCode(t, err, "ERR")
		mustLock(t, a, Request{Key: "k", Kind: Read, Self: true})
		mustUnlock(t, a, UnlockRequest{Key: "k", Side: Read}, true)
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
		m := bubbleEngine(t, w, n, "one", Options{})
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
		mustLock(t, b, Request{Key: "k", Owner: "o"})
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
				m, other := bubbleEngine(t, w, n, "one", Options{}), bubbleEngine(t, w, n, "two", Options{})
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
