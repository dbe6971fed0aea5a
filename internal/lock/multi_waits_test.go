package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// What an owner is told of a lock through another connection, while a MULTILOCK of the owner waits for that very lock, holds whatever comes of the
// MULTILOCK, and no longer.
func TestMultiLockWaitsBehindItsOwner(t *testing.T) {
	locks := func(lease int64) func(c *Client) error {
		return func(c *Client) error {
			_, err := c.Lock(context.Background(), Request{Key: "a", Owner: "X", Lease: lease, Blocks: true})
			return err
		}
	}
	for _, first := range []struct {
		name        string
		does        func(c *Client) error
		least, most time.Duration // it ends between, after the grant
	}{
		{"LOCK EX", locks(50_000), 49 * time.Second, 55 * time.Second},
		{"LOCK", locks(0), 2 * time.Minute, time.Hour},
		{"MULTILOCK EX", func(c *Client) error {
			_, err := c.MultiLock(context.Background(), []string{"a", "c"}, Request{Owner: "X", Lease: 50_000, Blocks: true})
			return err
		}, 49 * time.Second, 65 * time.Second},
	} {
		for _, how := range []string{"one", "two", "quorum"} {
			for _, succeeds := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, succeeds %v", first.name, how, succeeds), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world.World) {
						m, n, there := oneOrTwo(t, w, how)
						other, _ := client(m)
						mustLock(t, other, Request{Key: "a"})
						if !succeeds {
							mustLock(t, other, Request{Key: "b"})
						}
						told, done := make(chan error, 1), make(chan error, 1)
						conn1, _ := client(m)
						go func() { told <- first.does(conn1) }()
						eventually(t, 5*time.Second, "the first waits", func() bool { return m.Stats().Waiting == 1 })
						conn2, _ := client(n)
						go func() {
							_, err := conn2.MultiLock(context.Background(), []string{"a", "b"}, Request{Owner: "X", Lease: 5000, Blocks: true, Block: 15_000})
							done <- err
						}()
						time.Sleep(5 * time.Second)
						mustUnlock(t, other, UnlockRequest{Key: "a"}, true)
						if err := <-told; err != nil {
							t.Fatal(err)
						}
						began := time.Now()
						if err := <-done; succeeds && err != nil || !succeeds && !errors.Is(err, ErrNotAcquired) {
							t.Fatal(err)
						}
						for there("a") && time.Since(began) < first.least {
							time.Sleep(time.Second)
						}
						if took := time.Since(began); took < first.least {
							t.Errorf("it ended after %v", took)
						}
						if first.most == time.Hour {
							return
						}
						if time.Sleep(first.most - first.least); there("a") {
							t.Error("it is renewed for ever")
						}
					})
				})
			}
		}
	}
}

// So does what a MULTILOCK is told that ends at the very moment at which another one of its owner asks for the same lock.
func TestMultiLockBesideAnEndingOne(t *testing.T) {
	for after := time.Duration(0); after < 2*time.Second; after += 50 * time.Millisecond {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m, _ := bubbleSlow(t, w, s, Options{})
			other, _ := client(m)
			mustLock(t, other, Request{Key: "c"})
			conn1, _ := client(m)
			conn2, _ := client(m)
			go func() {
				time.Sleep(after)
				_, _ = conn2.MultiLock(context.Background(), []string{"a", "c"}, Request{Owner: "X", Lease: 100})
			}()
			if _, err := conn1.MultiLock(context.Background(), []string{"a", "b"}, Request{Owner: "X", Lease: 5000}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(4 * time.Second)
			if pttl(t, s, "a") <= 0 {
				t.Errorf("asked for after %v it has ended early", after)
			}
			time.Sleep(40 * time.Second)
			if pttl(t, s, "a") > 0 {
				t.Errorf("asked for after %v it is renewed for ever", after)
			}
		})
	}
}

// oneOrTwo is the proxies of two connections, which may be the same, on one Redis or on a quorum, and says whether a lock is there.
func oneOrTwo(t *testing.T, w *world.World, how string) (m, n *Manager, there func(key string) bool) {
	t.Helper()
	if how != "two" {
		m, there = oneOrQuorum(t, w, how == "quorum")
		return m, m, there
	}
	s := w.NewNode(bubbleAddr)
	w.Proxy("two").Link(s.Addr()).Delay(50*time.Millisecond, 0) // the other one comes first
	return bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{}), func(key string) bool { return pttl(t, s, key) > 0 }
}
