package lock

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// Those on one proxy of whom there is always one that waits, but never for long, leave turns to others, too.
func TestTurnsOfFew(t *testing.T) {
	for name, c := range map[string]struct {
		clients int
		kind    func(client int) Kind
		one     Kind
		far     time.Duration // of the other proxy from Redis
	}{
		"two":     {2, func(int) Kind { return Plain }, Plain, 0},
		"far":     {2, func(int) Kind { return Plain }, Plain, 3 * time.Millisecond},
		"readers": {60, func(i int) Kind { return []Kind{Write, Read}[min(i, 1)] }, Write, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				s := w.NewNode(bubbleAddr)
				m, n := bubbleEngine(t, w, s, "few", ManagerOptions{Poll: time.Minute}), bubbleEngine(t, w, s, "other", ManagerOptions{Poll: time.Minute})
				if c.far > 0 {
					w.Proxy("other").Link(s.Addr()).Delay(c.far, 0)
				}
				var group sync.WaitGroup
				var done atomic.Bool
				for i := range c.clients {
					a, _ := client(m)
					group.Go(func() {
						for r := (Request{Key: "k", Kind: c.kind(i), Blocks: true}); !done.Load(); time.Sleep(time.Millisecond) {
							mustLock(t, a, r)
							time.Sleep(10 * time.Millisecond)
							mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
						}
					})
				}
				eventually(t, 10*time.Second, "a start", func() bool { return m.Stats().Granted > 100 })
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				one, _ := client(n)
				for range 10 {
					if _, err := one.Lock(ctx, Request{Key: "k", Kind: c.one, Blocks: true}); err != nil {
						t.Error("no turn for another proxy:", err)
						break
					}
					mustUnlock(t, one, UnlockRequest{Key: "k"}, true)
				}
				done.Store(true)
				group.Wait()
			})
		})
	}
}

// TestTurnRule is the rule by which a proxy leaves a turn to others.
func TestTurnRule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		grants      int
		long, pause time.Duration
		over        bool
	}{
		{0, 0, handoffPause, false},
		{31, 99 * time.Millisecond, handoffPause, false}, // neither many nor long
		{32, 19 * time.Millisecond, handoffPause, false}, // many, but the pause would be more than a tenth
		{32, 20 * time.Millisecond, handoffPause, true},
		{1, 100 * time.Millisecond, handoffPause, true}, // each is held for long
		{1000, 2499 * time.Millisecond, handoffPauseMost, false},
		{1000, 2500 * time.Millisecond, handoffPauseMost, true},
	} {
		began := time.Unix(1000, 0)
		if got := (handoffsInARow{c.grants, began}).over(c.pause, began.Add(c.long)); got != c.over {
			t.Errorf("%d grants in %v, pause %v: over is %v", c.grants, c.long, c.pause, got)
		}
	}
	if kept := turnsFrom(handoffPauseMost); kept.pause != handoffPauseMost || kept.last != handoffPauseMost {
		t.Errorf("a line whose lock has kept a pause begins with %v after %v", kept.pause, kept.last)
	}
	rule := turnsFrom(0)
	rule.turnEnded(false)
	if rule.pause != handoffPause {
		t.Errorf("no turn was offered, and the pause is %v", rule.pause)
	}
	for i, c := range []struct {
		used  bool
		pause time.Duration
	}{
		{true, 2 * time.Millisecond}, {false, 4 * time.Millisecond}, {false, 8 * time.Millisecond}, {false, 16 * time.Millisecond},
		{true, 14 * time.Millisecond}, {false, 28 * time.Millisecond}, {false, 56 * time.Millisecond}, {false, 112 * time.Millisecond},
		{false, 224 * time.Millisecond}, {false, handoffPauseMost}, {false, handoffPauseMost},
	} {
		now := time.Unix(1000, 0)
		was := rule.pause
		if rule.offer(now); !rule.offered || !rule.holdBack.Equal(now.Add(was)) {
			t.Errorf("%d: offered %v, until %v", i, rule.offered, rule.holdBack)
		}
		rule.turnEnded(c.used)
		if rule.offered || rule.pause != c.pause || rule.last != was {
			t.Errorf("%d: used %v: the pause is %v, not %v; that of the turn before was %v, not %v",
				i, c.used, rule.pause, c.pause, rule.last, was)
		}
	}
	for i, want := range []int64{10, 20, 40, 80, 100} {
		if got := rule.comeAgain(true, 100); got != want {
			t.Errorf("refusal %d: it comes again in %d ms, not %d", i, got, want)
		}
	}
	if got := rule.comeAgain(false, 100); got != 100 || rule.comeAgain(true, 100) != 10 {
		t.Errorf("after another refusal: %d ms", got)
	}
}

// TestMessagesOfOthers are what a proxy hears after it has left a turn to others, its own message first.
func TestMessagesOfOthers(t *testing.T) {
	t.Parallel()
	const plain, sharded = false, true
	for _, c := range []struct {
		name   string
		heard  []bool
		others bool
	}{
		{"nothing", nil, false},
		{"its own by PUBLISH", []bool{plain}, false},
		{"its own in both ways", []bool{sharded, plain}, false},
		{"an older Redisson's by PUBLISH", []bool{sharded, plain, plain}, true},
		{"a newer Redisson's by SPUBLISH", []bool{sharded, plain, sharded}, true},
		{"another proxy's in both ways", []bool{sharded, plain, sharded, plain}, true},
	} {
		var m messages
		for _, way := range c.heard {
			m.count(way)
		}
		if got := m.others(); got != c.others {
			t.Errorf("%s: others have had the lock is %v", c.name, got)
		}
		if m.forget(); m.others() {
			t.Errorf("%s: not forgotten", c.name)
		}
	}
}

// Others who need 130 ms to come get a turn that is long enough after 3 s, though each turn before was too short for them.
func TestTurnsOfWhoeverIsFarAway(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	rule, began := turnsFrom(0), now
	for rule.last < 130*time.Millisecond {
		row := handoffsInARow{handoffMany, now}
		for !row.over(rule.last, now) {
			now = now.Add(time.Millisecond)
		}
		rule.offer(now)
		now = rule.holdBack
		rule.turnEnded(false)
	}
	if took := now.Sub(began); took > 3100*time.Millisecond {
		t.Errorf("the first turn that was long enough came after %v", took)
	}
}
