package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// frozen stops Redis for a while with 12 locks held, 20 clients in the middle of a command and 20 that want locks.
// It returns how long after SIGCONT all of those had been answered, and the residents.
func frozen(t *testing.T, server *testredis.Server, p *harness.Proxy, pause time.Duration) (all []*resident, served time.Duration) {
	all = settleIn(t, p)
	busy := make([]*harness.Wire, 40)
	for i := range busy {
		busy[i] = harness.Dial(t, p.Addr())
		busy[i].Do("CLIENT", "ID")
	}
	before := p.Metric("go_goroutines")
	server.Stop()
	for i, w := range busy {
		if i%2 == 0 {
			w.Send("INCR", "n")
		} else {
			w.Send("LOCK", fmt.Sprint("busy", i))
		}
	}
	time.Sleep(pause)
	during := p.Metric("go_goroutines")
	stalled := harness.WatchStalls()
	server.Cont()
	awake := time.Now()
	nothing := 0
	for i, w := range busy {
		got := w.Read()
		if i%2 == 0 && !strings.HasPrefix(got, ":") {
			t.Errorf("INCR across %v: %q", pause, got)
		}
		if i%2 == 1 && got == "$-1\r\n" { // its lease was over before the proxy had the reply
			nothing++
			continue
		}
		// Unavailable: it was found not to have been done, and there was no connection yet to ask again on.
		if i%2 == 1 && got != "+OK\r\n" && !strings.HasPrefix(got, "-ERR the reply to this LOCK was lost") &&
			!strings.HasPrefix(got, "-ERR upstream unavailable: ") {
			t.Errorf("LOCK across %v: %q", pause, got)
		}
	}
	served = time.Since(awake)
	if stall := stalled(); nothing > 0 && stall < harness.MayStall {
		t.Errorf("%d locks were not given across %v", nothing, pause)
	}
	for _, w := range busy {
		if got := w.Do("PING"); got != "+PONG\r\n" {
			t.Errorf("PING after %v: %q", pause, got)
		}
	}
	for i, w := range busy { // what was granted unheard is given back
		if i%2 == 1 {
			key := fmt.Sprint("busy", i)
			harness.Eventually(t, key+" can be had", func() bool { return w.Do("LOCK", key, "SELF") == "+OK\r\n" })
			if got := w.Do("UNLOCK", key, "ALL"); got != ":1\r\n" {
				t.Errorf("UNLOCK %s: %q", key, got)
			}
		}
	}
	var after float64
	harness.Eventually(t, "no goroutines are left", func() bool { after = p.Metric("go_goroutines"); return after < before+20 })
	if during > before+3*float64(len(busy)) {
		t.Errorf("%v goroutines before, %v while Redis was frozen", before, during)
	}
	t.Logf("frozen for %v: %v goroutines before, %v meanwhile, %v after; all answered %v after SIGCONT", pause, before, during, after, served.Round(time.Millisecond))
	return all, served
}

// Redis stands still for less than a lease: nobody loses anything.
func TestRedisFrozenForLessThanALease(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := harness.StartProxy(t, server.URL(), "--lock-watchdog-timeout", "12s")
	all, served := frozen(t, server, p, 3*time.Second)
	for _, r := range all {
		if got := r.unlock(); got != ":1\r\n" {
			t.Errorf("UNLOCK %s: %q", r.key, got)
		}
	}
	if served > harness.Bound(soon) {
		t.Errorf("served again only %v after SIGCONT", served)
	}
	if strings.Contains(p.Log(), "lock lost") {
		t.Error("a loss was logged")
	}
}

// Redis stands still for longer than the leases: the holders hear of the loss when their lease is over, not later.
func TestRedisFrozenForLongerThanALease(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{4 * time.Second, 8 * time.Second} {
		t.Run(pause.String(), func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			p := harness.StartProxy(t, server.URL(), "--lock-watchdog-timeout", "3s")
			all, served := frozen(t, server, p, pause)
			for _, r := range all {
				if r.push {
					push, err := r.w.TryRead(harness.Patience)
					if !strings.HasPrefix(push, ">4\r\n$9\r\nlock-lost\r\n") {
						t.Errorf("%s: instead of a push %q, %v", r.key, push, err)
					}
				}
				if got := r.unlock(); !strings.HasPrefix(got, "-LOCKLOST ") {
					t.Errorf("UNLOCK %s: %q", r.key, got)
				}
				if got := server.Do(t, "EXISTS", r.key); got != int64(0) {
					t.Errorf("%s is in Redis still", r.key)
				}
			}
			if served > harness.Bound(soon) {
				t.Errorf("served again only %v after SIGCONT", served)
			}
		})
	}
}

// A loss is told while Redis is still away: when the lease is over, not when Redis answers again.
func TestLossIsToldWhileRedisIsFrozen(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := harness.StartProxy(t, server.URL(), "--lock-watchdog-timeout", "6s")
	w := harness.DialHearing(t, p.Addr())
	if got := w.Do("LOCK", "k"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	server.Stop()
	defer server.Cont()
	stopped := time.Now()
	push, err := w.TryRead(harness.Patience)
	took := time.Since(stopped)
	if push != ">4\r\n$9\r\nlock-lost\r\n$1\r\nk\r\n$5\r\nplain\r\n$9\r\nunrenewed\r\n" {
		t.Fatalf("%q, %v", push, err)
	}
	t.Logf("the holder heard of the loss %v after Redis had stopped, its lease is 6 s", took.Round(time.Millisecond))
	if took > harness.Bound(9*time.Second) {
		t.Error("late")
	}
}
