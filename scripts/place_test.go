package scripts_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/scripts"
)

// TestPlaceBehindRedisson: the score of an owner that comes to a fair queue is higher by what Redisson's waiters before it would wait, also when
// Redisson has taken dead waiters of lockproxy out, and left their tickets. Behind lockproxy's own waiters it is not.
func TestPlaceBehindRedisson(t *testing.T) {
	s := testredis.Start(t)
	const timeouts, tickets, fairWait = "redisson_lock_timeout:{k}", "lockproxy_fair:{k}", 300000
	enter := func(owner string) (left int64) {
		t.Helper()
		run(t, s, scripts.Acquire, plain("k"), owner, 1, 60000, soon, "", 0, "PUBLISH", "", 0)
		score, err := redis.Int64(s.Do(t, "ZSCORE", timeouts, owner), nil)
		if err != nil {
			t.Fatal(owner, err)
		}
		return score - time.Now().UnixMilli()
	}
	for _, left := range []int{0, 1, 5} {
		for redissons := range 3 {
			s.Do(t, "FLUSHALL")
			s.Do(t, "HSET", "k", "you", 1)
			s.Do(t, "PEXPIRE", "k", 60000)
			for i := range redissons {
				s.Do(t, "RPUSH", "redisson_lock_queue:{k}", fmt.Sprint("r", i))
				s.Do(t, "ZADD", timeouts, time.Now().UnixMilli()+60000+int64(i+1)*fairWait, fmt.Sprint("r", i))
			}
			for i := range left {
				s.Do(t, "HSET", tickets, "", 5, fmt.Sprint("dead", i), "5:0")
			}
			for _, owner := range []string{"a", "b", "c"} {
				want := int64(10000 + redissons*fairWait)
				if got := enter(owner); got > want+5000 || got < want-5000 {
					t.Errorf("%s, behind %d of Redisson, %d tickets left: %d ms, want %d", owner, redissons, left, got, want)
				}
			}
		}
	}
}

// TestPlaceOutlastsRedissonsTime: what Redisson's waiters take off the scores when they get the lock leaves one of lockproxy's behind them alive, and
// no longer than it lives by itself; also when others of lockproxy stand before them, and after reports.
func TestPlaceOutlastsRedissonsTime(t *testing.T) {
	s := testredis.Start(t)
	const timeouts = "redisson_lock_timeout:{k}"
	score := func(owner string) int64 {
		t.Helper()
		score, err := redis.Int64(s.Do(t, "ZSCORE", timeouts, owner), nil)
		if err != nil {
			t.Fatal(owner, err)
		}
		return score
	}
	enter := func(owner string) {
		run(t, s, scripts.Acquire, plain("k"), owner, 1, 60000, soon, "", 0, "PUBLISH", "", 0)
	}
	redisson := func(name string, score int64) {
		s.Do(t, "RPUSH", queue, name)
		s.Do(t, "ZADD", timeouts, score, name)
	}
	served := func(name string, wait int64) {
		s.Do(t, "LREM", queue, 1, name)
		s.Do(t, "ZREM", timeouts, name)
		all, err := redis.Strings(s.Do(t, "ZRANGE", timeouts, 0, -1), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, waiter := range all {
			s.Do(t, "ZINCRBY", timeouts, -wait, waiter)
		}
	}
	refresh := func() { run(t, s, scripts.Refresh, plain("k")[:2], soon, "PUBLISH", "a", 1, "b", 2) }
	for _, c := range []struct {
		wait, waited int64 // of Redisson's first, in ms
		behind       bool  // another of lockproxy
	}{{10_000, 0, false}, {10_000, 0, true}, {300_000, 0, true}, {300_000, 60_000, false}, {300_000, 200_000, true}} {
		s.Do(t, "FLUSHALL")
		s.Do(t, "HSET", "k", "you", 1)
		first := time.Now().UnixMilli() + 30000 // not later than the lock's end
		s.Do(t, "PEXPIRE", "k", 30000)
		if c.behind {
			enter("a")
			first = score("a")
		}
		redisson("r1", first+c.wait-c.waited)
		redisson("r2", first+c.wait-c.waited+20_000)
		enter("b")
		for _, after := range []func(){func() {}, refresh, func() { served("r1", c.wait) }, refresh, func() { served("r2", 20_000) }} {
			after()
		}
		for range 2 {
			if left := score("b") - time.Now().UnixMilli(); left > 10_000 || left < 5000 {
				t.Errorf("%+v: the score lasts for %d ms when Redisson's waiters have had their turns", c, left)
			}
			refresh()
		}
	}
}

// TestPlaceBehindAnyScore: whatever score somebody has, or somebody's entry says, those that come after get their places.
func TestPlaceBehindAnyScore(t *testing.T) {
	s := testredis.Start(t)
	for _, score := range []string{"9.3e18", "1e300", "inf", "-inf", "-1e300"} {
		for _, name := range []string{"redisson", "odd entry", "a"} {
			s.Do(t, "FLUSHALL")
			s.Do(t, "HSET", "k", "you", 1)
			s.Do(t, "PEXPIRE", "k", 60000)
			enter := func(owner string) string {
				return run(t, s, scripts.Acquire, plain("k"), owner, 1, 60000, soon, "", 0, "PUBLISH", "", 0)
			}
			enter("a")
			if name != "a" {
				s.Do(t, "RPUSH", queue, name, "another")
				s.Do(t, "ZADD", "redisson_lock_timeout:{k}", score, "another")
			}
			if name == "odd entry" {
				s.Do(t, "HSET", "lockproxy_fair:{k}", name, "7", "another", "x:7")
			}
			s.Do(t, "ZADD", "redisson_lock_timeout:{k}", score, name)
			for _, reply := range []string{enter("b"), enter("a"), enter("b")} {
				want(t, reply[:5], "[0 0 ")
			}
			want(t, run(t, s, scripts.Refresh, plain("k")[:2], soon, "PUBLISH", "a", 1, "b", 2)[:1], "[")
		}
	}
}

// TestLongQueueCostsNoMore: the steps of a grant run no more commands in a queue of ten thousand than in one of forty, whether lockproxy's waiters stand
// there, Redisson's, or both by turns.
func TestLongQueueCostsNoMore(t *testing.T) {
	s := testredis.Start(t)
	conn := s.Dial(t)
	const timeouts, tickets = "redisson_lock_timeout:{k}", "lockproxy_fair:{k}"
	commands := func(do func()) (calls int) {
		t.Helper()
		ask(t, conn, "CONFIG", "RESETSTAT")
		do()
		stats, err := redis.String(ask(t, conn, "INFO", "commandstats"), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`:calls=(\d+)`).FindAllStringSubmatch(stats, -1) {
			n, _ := strconv.Atoi(found[1])
			calls += n
		}
		return calls
	}
	cost := func(waiters int, kind string) (costs []int) {
		now := time.Now().UnixMilli()
		list, scores, entries := []any{"RPUSH", queue}, []any{"ZADD", timeouts}, []any{"HSET", tickets, "", waiters}
		for i := 1; i <= waiters; i++ {
			name := fmt.Sprint("w", i)
			list, scores = append(list, name), append(scores, now+600_000+int64(i)*300_000, name)
			if kind == "ours" || kind == "both" && i%2 == 1 || i <= 3 {
				entries = append(entries, name, fmt.Sprintf("%d:%d", i, now+600_000))
			}
		}
		prepare(t, conn, [][]any{{"HSET", "k", "you", 1}, {"PEXPIRE", "k", 600_000}, list, scores, entries, {"PEXPIRE", tickets, int64(1e13)}})
		enter := func(owner string, ticket int, reply string) func() {
			return func() {
				want(t, eval(t, conn, scripts.Acquire, plain("k"), owner, 1, 60000, soon, "", ticket, "PUBLISH", "", 0)[:4], reply)
			}
		}
		for _, step := range []func(){
			enter("new", 0, "[0 0"), enter("new", 0, "[0 0"), enter("w3", 3, "[0 0"),
			func() { want(t, eval(t, conn, scripts.Release, plain("k"), "you", 0, soon, "", "PUBLISH", ""), "1") },
			enter("w1", 1, "[1 1"),
			func() {
				want(t, eval(t, conn, scripts.Handoff, plain("k"), channel, "", "PUBLISH", "p", "w1", 0, soon, "", "PUBLISH", "",
					"w2", 1, 60000, soon, "", 2, "PUBLISH", "", 0)[:10], "[1 0 1 1 6")
			},
			func() { want(t, eval(t, conn, scripts.Leave, plain("k")[:2], soon, "PUBLISH", "new"), "1") },
		} {
			costs = append(costs, commands(step))
		}
		return costs
	}
	for _, kind := range []string{"ours", "both", "redisson"} {
		few, many := cost(40, kind), cost(10_000, kind)
		for i := range few {
			if many[i] > few[i] {
				t.Errorf("%s: step %d runs %d commands with 40 waiters and %d with 10,000", kind, i, few[i], many[i])
			}
		}
	}
}
