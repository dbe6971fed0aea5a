package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/upstream"
)

// inBubble runs a test in a bubble: its clock goes on when everybody waits, so that what sleeps for hours there takes no time. What is
// made in the bubble must end in it.
func inBubble(t *testing.T, test func(t *testing.T, w *world.World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := world.New(1)
		t.Cleanup(w.Close)
		test(t, w)
	})
}

const bubbleAddr = "10.0.0.1:6379"

// bubbleEngine is a Manager at work on a node of a World, as the proxy of that name.
func bubbleEngine(t *testing.T, w *world.World, n *world.Node, proxy string, o ManagerOptions) *Manager {
	t.Helper()
	o.Logger, o.Events = testLog(), events.New(nil, "")
	target := upstream.Target{Network: "tcp", Addr: n.Addr(), Dialer: w.Proxy(proxy)}
	ctl := upstream.NewControl(target, upstream.ControlOptions{Logger: o.Logger})
	m := atWork(t, New(sharded.Single(ctl), o), ctl.Close)
	synctest.Wait() // when it listens to wake-ups it looks at all holds once
	return m
}

// bubbleSlow is an engine whose messages to the node, and from it, take 100 ms; the link is that to break.
func bubbleSlow(t *testing.T, w *world.World, n *world.Node, o ManagerOptions) (*Manager, *world.Link) {
	t.Helper()
	const proxy = "slow"
	m := bubbleEngine(t, w, n, proxy, o)
	a, _ := client(m)
	for range 2 { // the first makes the connection, for which the second waits to know what the account can do there
		mustLock(t, a, Request{Key: "warm"})
		mustUnlock(t, a, UnlockRequest{Key: "warm"}, true)
	}
	link := w.Proxy(proxy).Link(n.Addr())
	link.Delay(100*time.Millisecond, 0)
	return m, link
}

// scriptsOf counts the scripts that clients have a node run, without those of the trial locks that ask whether locks can be had.
func scriptsOf(n *world.Node) *atomic.Int64 {
	ran := new(atomic.Int64)
	n.Log(func(_ time.Time, _ *world.Node, command []string, reply string) {
		all := strings.Join(command, " ")
		trial := strings.Contains(all, "lockproxy_probe:") || strings.Contains(all, "{lockproxy}")
		if strings.HasPrefix(strings.ToUpper(all), "EVAL") && !trial && !strings.HasPrefix(reply, "-NOSCRIPT") {
			ran.Add(1)
		}
	})
	return ran
}

// dialNode is a connection of somebody else to a node.
func dialNode(t *testing.T, w *world.World, n *world.Node) redis.Conn {
	t.Helper()
	c, err := w.Proxy("somebody").Dial(t.Context(), "tcp", n.Addr())
	if err != nil {
		t.Fatal(err)
	}
	conn := redis.NewConn(c, 0, 0)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// So it is when it is given back shortly before the lease is over, or the whole lease is short.
func TestLeaseGivenBackElsewhereBeforeItsEnd(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		for lease, had := range map[int64]time.Duration{50: 10 * time.Millisecond, 5000: 0, 20_000: 19900 * time.Millisecond, 45_000: 44 * time.Second} {
			t.Run(fmt.Sprintf("%v, %d ms, after %v", kind, lease, had), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) {
					s := w.NewNode(bubbleAddr)
					m := bubbleEngine(t, w, s, "one", ManagerOptions{})
					a, _ := client(m)
					b, _ := client(bubbleEngine(t, w, s, "two", ManagerOptions{}))
					mustLock(t, a, Request{Key: "k", Kind: kind, Owner: "job", Lease: lease})
					time.Sleep(had)
					mustUnlock(t, b, UnlockRequest{Key: "k", Side: kind, Owner: "job"}, true)
					w.Proxy("one").Link(s.Addr()).Delay(100*time.Millisecond, 0) // so that Redis hears of the look when the lease is over
					time.Sleep(time.Minute)
					if lost := lossesOf(m); len(lost) != 0 || m.Stats().Held != 0 {
						t.Errorf("lost: %+v, %d are believed held", lost, m.Stats().Held)
					}
					if keys := texts(t, s, "KEYS", "*"); len(keys) != 0 {
						t.Error("left:", keys)
					}
				})
			})
		}
	}
}

func TestWatchdogAndLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		a, lost := client(m)
		mustLock(t, a, Request{Key: "renewed"})
		mustLock(t, a, Request{Key: "leased", Lease: 25000})
		s.Do(t, "SET", "poison", "x")
		mustLock(t, a, Request{Key: "overwritten"})
		s.Do(t, "SET", "overwritten", "x")
		time.Sleep(95 * time.Second)
		if pttl(t, s, "renewed") <= 0 {
			t.Fatal("not renewed for three periods")
		}
		if got := lost.reasons(); got != "overwritten:gone leased:expired " {
			t.Fatal(got)
		}
		s.Do(t, "DEL", "renewed")
		eventually(t, 15*time.Second, "loss noticed", func() bool { return lost.reasons() == "overwritten:gone leased:expired renewed:gone " })
		_, err := a.Unlock(context.Background(), UnlockRequest{Key: "renewed"})
		wantCode(t, err, "LOCKLOST")
		mustLock(t, a, Request{Key: "renewed"})
		mustUnlock(t, a, UnlockRequest{Key: "renewed"}, true)
	})
}

func TestRenewVerb(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		a, lost := client(m)
		ctx := context.Background()
		wantCode(t, a.Renew(ctx, RenewRequest{Key: "k"}), "NOTHELD")
		mustLock(t, a, Request{Key: "k", Lease: 300})
		if err := a.Renew(ctx, RenewRequest{Key: "k"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Second)
		if pttl(t, s, "k") <= 0 {
			t.Fatal("not watched")
		}
		if err := a.Renew(ctx, RenewRequest{Key: "k", Lease: 300}); err != nil {
			t.Fatal(err)
		}
		eventually(t, 15*time.Second, "expired", func() bool { return lost.reasons() == "k:expired " })
	})
}

func TestWaiterTimesOut(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		a, _ := client(m)
		b, _ := client(m)
		mustLock(t, a, Request{Key: "k"})
		began := time.Now()
		if _, err := b.Lock(context.Background(), Request{Key: "k", Blocks: true, Block: 100}); !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Fatal(took) // to the nanosecond: nothing else goes on in a bubble
		}
		if n := m.Stats().Waiting; n != 0 {
			t.Fatal(n)
		}
	})
}

func TestRestartIsNoticed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		a, lost := client(m)
		mustLock(t, a, Request{Key: "watched"})
		mustLock(t, a, Request{Key: "leased", Lease: 60000})
		s.Restart()
		eventually(t, 15*time.Second, "both lost", func() bool {
			r := lost.reasons()
			return r == "watched:gone leased:gone " || r == "leased:gone watched:gone "
		})
		// Each connection comes back by itself, this one perhaps last.
		eventually(t, 15*time.Second, "locks again", func() bool {
			_, err := a.Lock(context.Background(), Request{Key: "watched"})
			return err == nil
		})
	})
}
