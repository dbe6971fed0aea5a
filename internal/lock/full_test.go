package lock

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// fullLease is long enough for a busy machine, on which a renewal may be some seconds late.
const fullLease = 10 * time.Second

// heldWhileFull are locks of every kind, each taken by its own client, some entered twice.
func heldWhileFull(t *testing.T, m *Manager) (all []func(), told []*losses) {
	t.Helper()
	add := func(r Request, times int) *Client {
		c, l := client(m)
		told = append(told, l)
		r.Self = r.Owner == ""
		for range times {
			mustLock(t, c, r)
		}
		all = append(all, func() {
			if r.Owner == "" {
				if err := c.Renew(t.Context(), RenewRequest{Key: r.Key, Side: r.Kind}); err != nil {
					t.Errorf("RENEW %+v: %v", r, err)
				}
			}
			if err := c.Renew(t.Context(), RenewRequest{Key: r.Key, Side: r.Kind, Owner: r.Owner, Lease: 30000}); err != nil {
				t.Errorf("RENEW PX %+v: %v", r, err)
			}
			if r.Owner != "" {
				if _, err := c.Lock(t.Context(), r); err != nil {
					t.Errorf("LOCK again %+v: %v", r, err)
				}
			}
			left := times - 1
			if r.Owner != "" {
				left = 0 // it has the lock, or not
			}
			for ; left >= 0; left-- {
				if free, err := c.Unlock(t.Context(), UnlockRequest{Key: r.Key, Side: r.Kind, Owner: r.Owner}); err != nil || free != (left == 0) {
					t.Errorf("UNLOCK %+v with %d left: %v %v", r, left, free, err)
				}
			}
		})
		return c
	}
	for _, owner := range []string{"", "o", "a:b"} {
		lease := int64(0) // of the watchdog
		if owner != "" {
			lease = 30_000
		}
		for _, times := range []int{1, 2} {
			name := owner + string(rune('0'+times))
			add(Request{Key: "plain" + name, Owner: owner, Fence: true, Lease: lease}, times)
			add(Request{Key: "long" + name, Owner: owner, Lease: 600000}, times)
			add(Request{Key: "fair" + name, Owner: owner, Fair: true, Lease: lease}, times)
			add(Request{Key: "read" + name, Owner: owner, Kind: Read, Lease: lease}, times)
			add(Request{Key: "read" + name, Kind: Read, Lease: 600000}, 1) // a longer reader beside it
			add(Request{Key: "write" + name, Owner: owner, Kind: Write, Fence: true, Lease: lease}, times)
		}
		both := add(Request{Key: "both" + owner, Owner: owner, Kind: Write, Lease: lease}, 2)
		mustLock(t, both, Request{Key: "both" + owner, Owner: owner, Kind: Read, Self: owner == "", Lease: lease})
		all = append(all, func() {
			mustUnlock(t, both, UnlockRequest{Key: "both" + owner, Owner: owner, Side: Read}, true)
		})
	}
	c, l := client(m)
	told = append(told, l)
	if _, err := c.MultiLock(t.Context(), []string{"{m}x", "{m}y"}, Request{}); err != nil {
		t.Fatal(err)
	}
	all = append(all, func() {
		mustUnlock(t, c, UnlockRequest{Key: "{m}x"}, true)
		mustUnlock(t, c, UnlockRequest{Key: "{m}y"}, true)
	})
	return all, told
}

// keptWhileFull: with full nodes every lock is renewed past its lease, lengthened, and given back; only a new one is refused.
func keptWhileFull(t *testing.T, m *Manager, nodes ...*testredis.Server) {
	give, told := heldWhileFull(t, m)
	holder, _ := client(m)
	mustLock(t, holder, Request{Key: "waited"})
	waiter, _ := client(m)
	waits := locking(waiter, Request{Key: "waited", Blocks: true, Fair: true})
	eventually(t, 30*time.Second, "waits", func() bool { return m.Stats().Waiting == 1 })
	for _, s := range nodes {
		s.Do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
		s.Do(t, "CONFIG", "SET", "maxmemory", "1")
	}
	renewed := m.Stats().Renewed
	time.Sleep(fullLease + time.Second)
	if m.Stats().Renewed == renewed {
		t.Error("nothing was renewed")
	}
	other, _ := client(m)
	if _, err := other.Lock(t.Context(), Request{Key: "new"}); err == nil {
		t.Error("a full Redis gave a new lock")
	}
	for _, back := range give {
		back()
	}
	mustUnlock(t, holder, UnlockRequest{Key: "waited"}, true)
	granted(t, waits, "who waits in the queue, to whom the lock is handed on")
	mustUnlock(t, waiter, UnlockRequest{Key: "waited"}, true)
	for _, l := range told {
		if l.reasons() != "" {
			t.Error("lost: ", l.reasons())
		}
	}
	if held := m.Stats().Held; held != 0 {
		t.Error(held, "are still held")
	}
}

// TestFullRedisKeepsLocks: maxmemory with noeviction, and locks of every kind.
func TestFullRedisKeepsLocks(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	keptWhileFull(t, engine(t, s.URL(), ManagerOptions{Watchdog: fullLease}), s)
}

// TestFullClusterKeepsLocks is the same before a cluster.
func TestFullClusterKeepsLocks(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	m := clusterEngine(t, tc, ManagerOptions{Watchdog: fullLease})
	keptWhileFull(t, m, tc.Servers...)
}
