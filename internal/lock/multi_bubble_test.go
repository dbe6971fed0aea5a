package lock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/upstream"
)

// TestMultiUnlockOfSome: what MULTIUNLOCK says when one node of a cluster is out of reach is not that nothing was done.
func TestMultiUnlockOfSome(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		k := w.NewCluster("10.0.0.1:6379", "10.0.0.2:6379")
		o := Options{Logger: testLog()}
		seeds := upstream.ClusterTarget{Seeds: []string{"10.0.0.1:6379"}, Node: upstream.Target{Network: "tcp", Dialer: w.Proxy("one")}}
		c, err := cluster.Open(context.Background(), seeds, cluster.Options{Node: upstream.NodeOptions{Logger: o.Logger}})
		if err != nil {
			t.Fatal(err)
		}
		m := atWork(t, New(sharded.Cluster(c, ""), o), c.Close)
		a, _ := client(m)
		keys := []string{nameIn("a", 0, 2), nameIn("b", 1, 2)}
		if _, err := a.MultiLock(context.Background(), keys, Request{Owner: "job"}); err != nil {
			t.Fatal(err)
		}
		w.Proxy("one").Link(k.Nodes()[0].Addr()).Cut()
		b, _ := client(m)
		_, err = b.MultiUnlock(context.Background(), keys, UnlockRequest{Owner: "job"})
		if k.Nodes()[1].Do(t, "EXISTS", keys[1]).(int64) != 0 {
			t.Fatal("the lock on the other node was not given back")
		}
		var own *Error
		if !errors.As(err, &own) || !strings.HasPrefix(own.Text, "not released: some ") {
			t.Fatal(err)
		}
	})
}

// TestMultiLockLeaseAfterALostRenewal: a MULTILOCK with a lease ends with it, also when the proxy's own renewal, whose reply was lost, has lengthened
// the hold meanwhile. One that a LOCK through another proxy has lengthened stays.
func TestMultiLockLeaseAfterALostRenewal(t *testing.T) {
	const watchdog, lease = 6 * time.Second, 2 * time.Second
	for _, elsewhere := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world.World) {
			n := w.NewNode(bubbleAddr)
			m := bubbleEngine(t, w, n, "one", Options{Watchdog: watchdog})
			a, _ := client(m)
			other, _ := client(m)
			if _, err := other.Lock(context.Background(), Request{Key: "k2", Lease: 1500}); err != nil {
				t.Fatal(err)
			}
			link := w.Proxy("one").Link(n.Addr())
			link.Delay(20*time.Millisecond, 0)
			var renewal sync.Once
			n.Log(func(_ time.Time, _ *world.Node, command []string, _ string) {
				if len(command) > 5 && command[2] == "2" && command[3] == "k1" && command[5] == "6000" {
					renewal.Do(func() {
						go func() {
							link.Swallow(world.Replies)
							time.Sleep(50 * time.Millisecond)
							link.Cut()
							link.Heal()
						}()
					})
				}
			})
			if elsewhere {
				c, _ := client(bubbleEngine(t, w, n, "two", Options{Watchdog: watchdog}))
				time.AfterFunc(time.Second, func() {
					_, err := c.Lock(context.Background(), Request{Key: "k1", Owner: "job", Lease: 20_000})
					if err != nil {
						t.Error(err)
					}
				})
			}
			r := Request{Owner: "job", Lease: lease.Milliseconds(), Blocks: true, Block: 5000}
			if _, err := a.MultiLock(context.Background(), []string{"k1", "k2"}, r); err != nil {
				t.Fatal(err)
			}
			time.Sleep(lease + 100*time.Millisecond)
			if there := n.Do(t, "EXISTS", "k1").(int64) == 1; there != elsewhere {
				t.Errorf("another LOCK: %v; when the lease is over the lock is there: %v", elsewhere, there)
			}
			if n.Do(t, "EXISTS", "k2").(int64) == 1 {
				t.Error("the last lock does not end")
			}
		})
	}
}

// TestMultiLockOfWhatWasGivenBackElsewhere: a lock with a lease that its owner has given back through another proxy is none that it had before,
// also when the reply to the MULTILOCK's request for it is lost: its lease ends it, nobody renews it.
func TestMultiLockOfWhatWasGivenBackElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		n := w.NewNode(bubbleAddr)
		one := bubbleEngine(t, w, n, "one", Options{})
		a, lost := client(one)
		b, _ := client(bubbleEngine(t, w, n, "two", Options{}))
		keys, r := []string{"k", "m"}, Request{Owner: "job", Lease: 55_000}
		if _, err := a.MultiLock(context.Background(), keys, r); err != nil {
			t.Fatal(err)
		}
		if freed, err := b.MultiUnlock(context.Background(), keys, UnlockRequest{Owner: "job"}); freed != 2 || err != nil {
			t.Fatal(freed, err)
		}
		link := w.Proxy("one").Link(n.Addr())
		link.Delay(20*time.Millisecond, 0)
		var request sync.Once
		n.Log(func(_ time.Time, _ *world.Node, command []string, reply string) {
			if len(command) > 6 && strings.HasPrefix(command[0], "EVAL") && slices.Contains(command, "30000") && slices.Contains(command, "k") {
				request.Do(func() {
					go func() {
						link.Swallow(world.Replies)
						time.Sleep(50 * time.Millisecond)
						link.Cut()
						link.Heal()
					}()
				})
			}
		})
		r.Lease = 10_000
		if _, err := a.MultiLock(context.Background(), keys, r); err != nil {
			t.Fatal(err)
		}
		for _, e := range one.List("job", "") {
			if e.Watched || e.Left > 10*time.Second {
				t.Errorf("%+v", e)
			}
		}
		time.Sleep(11 * time.Second)
		if n.Do(t, "EXISTS", "k", "m").(int64) != 0 || one.Stats().Held != 0 || lost.reasons() != "" {
			t.Errorf("the locks are there for ever; lost: %q", lost.reasons())
		}
	})
}
