package lock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// work is what Redis has done since it was started: commands, those in scripts included, and µs within scripts.
func work(t *testing.T, s *testredis.Server) (commands, inScripts int) {
	t.Helper()
	info, err := redis.String(s.Do(t, "INFO", "commandstats"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, rest, _ := strings.Cut(line, ":")
		var calls, usec int
		if _, err := fmt.Sscanf(rest, "calls=%d,usec=%d,", &calls, &usec); err != nil {
			continue
		}
		commands += calls
		if strings.HasPrefix(name, "cmdstat_eval") {
			inScripts += usec
		}
	}
	return commands, inScripts
}

// fill writes n fields, elements or members by the arguments that each makes of its number.
func fill(t *testing.T, s redisServer, n int, command, key string, each func(i int) []any) {
	t.Helper()
	for from := 0; from < n; from += 1000 {
		args := []any{command, key}
		for i := from; i < min(from+1000, n); i++ {
			args = append(args, each(i)...)
		}
		s.Do(t, args...)
	}
}

// TestScriptsWorkIsBounded: whatever a client wrote beside or into a lock, one verb has Redis do so much and no more.
func TestScriptsWorkIsBounded(t *testing.T) {
	t.Parallel()
	const most = 30000 // commands for one verb, of which a hand-off or a queue may need a few runs
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{})
	a, _ := client(m)
	b, _ := client(m)
	manyFields := func(key, value string, n int) {
		fill(t, s, n, "HSET", key, func(i int) []any { return []any{fmt.Sprint("f", i), value} })
	}
	reads := func(key string) { mustLock(t, a, Request{Key: key, Kind: Read}) }
	for name, c := range map[string]struct {
		before func(key string)
		verb   func(key string) error
	}{
		"LOCKINFO of many holds": {func(key string) { s.Do(t, "HSET", key, "mode", "read"); manyFields(key, "9999", 1000) }, func(key string) error {
			in, err := m.Info(t.Context(), 0, key)
			if in.Kind != "read" || len(in.Holders) != 0 {
				t.Errorf("%+v", in)
			}
			return err
		}},
		"LOCKINFO of many fields": {func(key string) { s.Do(t, "HSET", key, "mode", "read"); manyFields(key, "1", 100000) }, func(key string) error {
			in, err := m.Info(t.Context(), 0, key)
			if in.Kind != "other" {
				t.Errorf("%+v", in.Kind)
			}
			return err
		}},
		"LOCKINFO of data": {func(key string) { manyFields(key, "1", 100000) }, func(key string) error {
			in, err := m.Info(t.Context(), 0, key)
			if in.Kind != "other" || len(in.Holders) != 0 {
				t.Errorf("%+v", in.Kind)
			}
			return err
		}},
		"UNLOCK of a reader": {func(key string) { reads(key); manyFields(key, "9999", 1000) }, func(key string) error {
			_, err := a.Unlock(t.Context(), UnlockRequest{Key: key})
			return err
		}},
		"UNLOCK of a reader with a count": {func(key string) { reads(key); s.Do(t, "HSET", key, a.Owner(), "999999999999999") }, func(key string) error {
			_, _ = a.Unlock(t.Context(), UnlockRequest{Key: key}) // its hold is gone by what the count says
			return nil
		}},
		"RENEW of a reader": {func(key string) { reads(key); manyFields(key, "9999", 1000) }, func(key string) error {
			return a.Renew(t.Context(), RenewRequest{Key: key, Lease: 10000})
		}},
		"RLOCK beside many": {func(key string) { reads(key); manyFields(key, "9999", 1000) }, func(key string) error {
			_, err := b.Lock(t.Context(), Request{Key: key, Kind: Read})
			return err
		}},
		"RLOCK with a count": {func(key string) { reads(key); s.Do(t, "HSET", key, b.Owner(), "999999999999999") }, func(key string) error {
			_, err := b.Lock(t.Context(), Request{Key: key, Kind: Read})
			return err
		}},
		"UNLOCK of a writer": {func(key string) { mustLock(t, a, Request{Key: key, Kind: Write}); manyFields(key, "9999", 1000) }, func(key string) error {
			_, err := a.Unlock(t.Context(), UnlockRequest{Key: key})
			return err
		}},
		"UNLOCK FORCE": {func(key string) { reads(key); manyFields(key, "9999", 1000) }, func(key string) error {
			_, err := a.Unlock(t.Context(), UnlockRequest{Key: key, Force: true})
			return err
		}},
		"LOCK behind a queue of strangers": {func(key string) {
			fill(t, s, 20000, "RPUSH", lockstore.QueueKey(key), func(i int) []any { return []any{fmt.Sprint("w", i)} })
		}, func(key string) error {
			if _, err := a.Lock(t.Context(), Request{Key: key}); err != ErrNotAcquired {
				t.Errorf("%v: nobody knows yet whose turn it is", err)
			}
			return nil
		}},
		"UNLOCK before a queue of strangers": {func(key string) {
			mustLock(t, a, Request{Key: key})
			fill(t, s, 20000, "RPUSH", lockstore.QueueKey(key), func(i int) []any { return []any{fmt.Sprint("w", i)} })
		}, func(key string) error {
			_, err := a.Unlock(t.Context(), UnlockRequest{Key: key})
			return err
		}},
	} {
		key := strings.ReplaceAll(name, " ", "-")
		c.before(key)
		commands, used := work(t, s)
		if err := c.verb(key); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		after, spent := work(t, s)
		t.Logf("%s: %d commands, %d µs in scripts", name, after-commands, spent-used)
		if after-commands > most {
			t.Errorf("%s: Redis ran %d commands", name, after-commands)
		}
	}
}

// TestRenewalsWorkIsBounded: counts that clients wrote into their locks cost no other lock its renewal.
func TestRenewalsWorkIsBounded(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{Watchdog: 6 * time.Second})
	victim, lost := client(m)
	mustLock(t, victim, Request{Key: "kept", Kind: Read})
	hostile, _ := client(m)
	for i := range 300 {
		key := fmt.Sprint("k", i)
		mustLock(t, hostile, Request{Key: key, Kind: Read})
		s.Do(t, "HSET", key, hostile.Owner(), "9999")
	}
	before, used := work(t, s)
	renewed := m.Stats().Renewed
	eventually(t, time.Minute, "three rounds of renewals", func() bool { return m.Stats().Renewed >= renewed+3 })
	after, spent := work(t, s)
	t.Logf("%d commands, %d µs in scripts", after-before, spent-used)
	if after-before > 200000 { // 300 locks with 9,999 looks each, three times, were 9 million
		t.Error(after - before)
	}
	if lost.reasons() != "" {
		t.Error(lost.reasons())
	}
	mustUnlock(t, victim, UnlockRequest{Key: "kept"}, true)
}

// TestLongQueueEnds: a queue of waiters that are over is taken apart a thousand at a time, by those that wait for the lock.
func TestLongQueueEnds(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{})
	fill(t, s, 5500, "RPUSH", lockstore.QueueKey("k"), func(i int) []any { return []any{fmt.Sprint("w", i)} })
	for _, fair := range []bool{false, true} {
		a, _ := client(m)
		granted(t, locking(a, Request{Key: "k", Blocks: true, Fair: fair}), "who waits")
		mustUnlock(t, a, UnlockRequest{Key: "k"}, true)
		fill(t, s, 5500, "RPUSH", lockstore.QueueKey("k"), func(i int) []any { return []any{fmt.Sprint("w", i)} })
	}
}

// TestManyFairWaiters: more waiters of one proxy than a refresh mends stay alive in their queue.
func TestManyFairWaiters(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k"})
		const many = 1300
		for range many {
			c, _ := client(m)
			locking(c, Request{Key: "k", Blocks: true, Block: 20000, Fair: true})
		}
		eventually(t, 20*time.Second, "all wait", func() bool { return s.Do(t, "LLEN", lockstore.QueueKey("k")).(int64) == many })
		score := func() int64 {
			last, _ := redis.String(s.Do(t, "LINDEX", lockstore.QueueKey("k"), -1), nil)
			ms, _ := redis.Float64(s.Do(t, "ZSCORE", lockstore.Prefixed("redisson_lock_timeout", "k"), last), nil)
			return int64(ms)
		}
		before := score()
		eventually(t, 15*time.Second, "the last one is refreshed", func() bool { return score() > before })
		if n := s.Do(t, "LLEN", lockstore.QueueKey("k")).(int64); n != many {
			t.Error(n, "are left")
		}
		m.Drain()
	})
}
