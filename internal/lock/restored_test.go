package lock

import (
	"context"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// What a connection was promised when it took a lock for a time of its own, or set that with RENEW, it keeps, whatever has cut the lease in Redis.
func TestLeaseOfItsOwnIsRestored(t *testing.T) {
	const promised = 7 * time.Minute // more than a clock is set ahead
	cutTo := func(left time.Duration) func(t *testing.T, n *world.Node) {
		return func(t *testing.T, n *world.Node) {
			keys, err := redis.Strings(n.Do(t, "KEYS", "*"), nil)
			if err != nil || len(keys) == 0 {
				t.Fatal(keys, err)
			}
			for _, key := range keys {
				n.Do(t, "PEXPIRE", key, left.Milliseconds())
			}
		}
	}
	for name, c := range map[string]struct {
		kind Kind
		cut  func(t *testing.T, n *world.Node)
		lost bool // the connections to Redis, too
	}{
		"another reader's watchdog, up to Redisson 4.3":   {kind: Read, cut: cutTo(30 * time.Second)},
		"another reader's watchdog":                       {kind: Read, cut: func(t *testing.T, n *world.Node) { n.Do(t, "PEXPIRE", "k", 30000) }},
		"a failover without the RENEW":                    {kind: Plain, cut: cutTo(20 * time.Second), lost: true},
		"a failover without the RENEW of a writer":        {kind: Write, cut: cutTo(20 * time.Second), lost: true},
		"a clock that is set ahead":                       {kind: Plain, cut: func(_ *testing.T, n *world.Node) { n.Jump(4 * time.Minute) }},
		"a clock that is set ahead while somebody writes": {kind: Write, cut: func(_ *testing.T, n *world.Node) { n.Jump(4 * time.Minute) }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				n := w.NewNode(bubbleAddr)
				m, rival := bubbleEngine(t, w, n, "one", ManagerOptions{}), bubbleEngine(t, w, n, "two", ManagerOptions{})
				a, told := client(m)
				b, _ := client(rival)
				began := time.Now()
				mustLock(t, a, Request{Key: "k", Kind: c.kind, Lease: 45000})
				if err := a.Renew(context.Background(), RenewRequest{Key: "k", Side: c.kind, Lease: promised.Milliseconds()}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				for range 3 {
					c.cut(t, n)
					if c.lost {
						w.Proxy("one").Link(n.Addr()).Drop()
					}
					time.Sleep(time.Minute)
				}
				if c.kind == Read {
					time.Sleep(time.Until(began.Add(promised - 35*time.Second)))
					c.cut(t, n)
				}
				time.Sleep(time.Until(began.Add(promised - 2*time.Second)))
				other := Write
				if c.kind == Plain {
					other = Plain
				}
				if _, err := b.Lock(context.Background(), Request{Key: "k", Kind: other}); err != ErrNotAcquired || told.reasons() != "" {
					t.Errorf("2 s before the end another one's LOCK is answered %v; the holder was told %q", err, told.reasons())
				}
				time.Sleep(4 * time.Second)
				mustLock(t, b, Request{Key: "k", Kind: other})
				if got := told.reasons(); got != "k:expired " {
					t.Errorf("in the end the holder was told %q", got)
				}
			})
		})
	}
}
