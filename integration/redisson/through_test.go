package redisson

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

func throughCells() (cells []cell) {
	for _, kind := range []string{"plain", "fair", "read", "write", "fenced", "multi", "spin"} {
		cells = append(cells, cell{kind: kind, what: "every call, by two clients of Redisson", run: calls})
	}
	return append(cells,
		cell{kind: "plain", what: "WAIT says that no replica is in step: Redisson does not take the lock", run: frozen, only: []string{replicated}},
		cell{kind: "semaphore", what: "permits run out, and a release wakes who waits", run: semaphores},
		cell{kind: "expirable semaphore", what: "a permit's lease ends and lets in who waits", run: leases, slow: true},
		cell{kind: "latch", what: "the last count wakes all who wait", run: latches},
	)
}

// group is two clients of Redisson, each at a lockproxy of its own.
type group struct {
	server, replica *testredis.Server // a Redis of their own; nil but with replicas
	a, b            *thread
}

// The columns that are no protocol.
const (
	replicated = "with replicas"
	inCluster  = "in cluster mode"
)

func (e *env) group(t *testing.T, column string) group {
	t.Helper()
	var g group
	url, mode, present := e.url, strings.ToLower(column), "standalone"
	switch column {
	case replicated:
		mode = "master"
		g.server = testredis.Start(t, "--repl-diskless-sync-delay", "0")
		g.replica = testredis.Start(t, "--replicaof", "127.0.0.1", fmt.Sprint(g.server.Port()))
		eventually(t, "the replica is in step", func() bool {
			n, err := redis.Int(g.server.Do(t, "WAIT", 1, 100), nil)
			return n == 1 && err == nil
		})
		g.server.Do(t, "CONFIG", "RESETSTAT")
		url = g.server.URL()
	case inCluster:
		mode, present = "cluster", "cluster"
	}
	n := e.serial.Add(1)
	for i, at := range []**thread{&g.a, &g.b} {
		p := harness.StartProxy(t, url, "--wait-poll", poll.String(), "--present", present)
		*at = &thread{e.java, fmt.Sprint("client-", n, "-", i), "t1"}
		e.java.connect(t, (*at).client, p.Addr(), mode)
	}
	t.Cleanup(func() {
		for _, s := range []*thread{g.a, g.b} {
			if _, err := e.java.call(s.client, "main", "shutdown"); err != nil {
				t.Errorf("Redisson's end: %v", err)
			}
		}
	})
	return g
}

// another is one more thread of the same client.
func (s *thread) another(name string) *thread { return &thread{s.j, s.client, name} }

// says runs a command and wants this answer.
func (s *thread) says(t testing.TB, want, command string, args ...any) {
	t.Helper()
	if got, err := s.j.call(s.client, s.name, command, args...); err != nil || got != want {
		t.Fatalf("%s %v: %q %v, want %q", command, args, got, err, want)
	}
}

// calls goes through the calls of one kind of lock.
func calls(t *testing.T, e *env, column, kind string) {
	g := e.group(t, column)
	a, b := g.a, g.b
	l := e.lock(kind)
	theirs := lock{rival(kind), l.name}
	hold(t, a, l, 0)
	tries(t, b, theirs, false)
	refused(t, b, l)
	if kind != "multi" {
		hold(t, a, l, long)
		a.says(t, "true", "lock.isLocked", l.kind, l.name)
		a.says(t, "true", "lock.held", l.kind, l.name)
		a.says(t, "2", "lock.holds", l.kind, l.name)
		b.says(t, "false", "lock.held", l.kind, l.name)
		free(t, a, l)
	}
	if won, err := b.try(theirs, 300*time.Millisecond, long); won || err != nil {
		t.Fatalf("waiting: %v %v", won, err)
	}
	free(t, a, l)
	for range 3 {
		hold(t, a, l, 0)
		got := start(func() error { _, err := b.lock(theirs, long); return err })
		time.Sleep(400 * time.Millisecond)
		released := time.Now()
		free(t, a, l)
		took := got.ok(t, "the waiter").Sub(released)
		if kind != "spin" { // which nobody tells
			e.woke(t, "Redisson twice, each through a lockproxy, "+column+": "+kind, took)
		}
		if kind != "multi" {
			must(t, a.force(theirs), "forcing")
			b.says(t, "false", "lock.isLocked", theirs.kind, theirs.name)
		} else {
			free(t, b, theirs)
		}
	}
	g.counts(t, lock{theirs.kind, e.name(theirs.kind)}, e.name("counter"))
	if column == replicated {
		info, err := redis.String(g.server.Do(t, "INFO", "commandstats"), nil)
		must(t, err, "INFO")
		if !strings.Contains(info, "cmdstat_wait:") {
			t.Error("Redisson did not WAIT for its replica")
		}
	}
}

// counts has threads of both clients count up under a lock.
func (g group) counts(t testing.TB, l lock, counter string) {
	t.Helper()
	const rounds = 25
	var all []later
	for _, s := range []*thread{g.a, g.b, g.a.another("t2"), g.b.another("t2")} {
		all = append(all, start(func() error {
			_, err := s.j.call(s.client, s.name, "hammer", l.kind, l.name, counter, rounds)
			return err
		}))
	}
	for i, worker := range all {
		worker.ok(t, fmt.Sprint("worker ", i))
	}
	g.a.says(t, fmt.Sprint(rounds*len(all)), "get", counter)
}

// frozen: Redisson asks with WAIT whether a replica has its lock, and hears through lockproxy that none has.
func frozen(t *testing.T, e *env, column, kind string) {
	g := e.group(t, column)
	l := e.lock(kind)
	hold(t, g.a, l, long)
	free(t, g.a, l)
	g.replica.Stop()
	defer g.replica.Cont()
	_, err := g.a.lock(l, long)
	if err == nil || !strings.Contains(err.Error(), "synced") {
		t.Errorf("locking while the replica stands still: %v", err)
	}
	g.replica.Cont()
	eventually(t, "locking goes on with the replica", func() bool {
		won, err := g.a.try(l, 0, long)
		return won && err == nil
	})
}

func semaphores(t *testing.T, e *env, column, _ string) {
	g := e.group(t, column)
	a, b := g.a, g.b
	name := e.name("semaphore")
	a.says(t, "true", "permits.set", name, 3)
	a.says(t, "true", "permits.acquire", name, 2)
	b.says(t, "false", "permits.try", name, 2)
	for range 3 {
		got := start(func() error { _, err := b.j.call(b.client, b.name, "permits.acquire", name, 2); return err })
		time.Sleep(400 * time.Millisecond)
		if !got.waiting() {
			t.Fatal("more permits than there are")
		}
		released := time.Now()
		a.says(t, "true", "permits.release", name, 2)
		e.woke(t, "Redisson twice, each through a lockproxy, "+column+": semaphore", got.ok(t, "the waiter").Sub(released))
		a.says(t, "1", "permits.left", name)
	}
}

func leases(t *testing.T, e *env, column, _ string) {
	g := e.group(t, column)
	a, b := g.a, g.b
	name := e.name("leases")
	a.says(t, "true", "leases.set", name, 1)
	_, err := a.j.call(a.client, a.name, "leases.acquire", name, 800)
	must(t, err, "acquiring")
	began := time.Now()
	_, err = b.j.call(b.client, b.name, "leases.acquire", name, 60000)
	must(t, err, "acquiring after the other's lease")
	if took := time.Since(began); took < 400*time.Millisecond || took > harness.Patience {
		t.Errorf("waited %v for the end of a lease of 800 ms", took)
	}
	a.says(t, "0", "leases.left", name)
}

func latches(t *testing.T, e *env, column, _ string) {
	g := e.group(t, column)
	a := g.a
	for range 3 {
		name := e.name("latch")
		a.says(t, "true", "latch.set", name, 2)
		var all []later
		for _, b := range []*thread{g.b, g.b.another("t2"), a.another("t2")} {
			all = append(all, start(func() error {
				if done, err := b.j.call(b.client, b.name, "latch.await", name, 60000); done != "true" {
					return fmt.Errorf("await: %s %w", done, err)
				}
				return nil
			}))
		}
		time.Sleep(400 * time.Millisecond)
		a.says(t, "true", "latch.down", name)
		a.says(t, "1", "latch.count", name)
		for _, waiter := range all {
			if !waiter.waiting() {
				t.Fatal("a latch opened with one count to go")
			}
		}
		released := time.Now()
		a.says(t, "true", "latch.down", name)
		for _, waiter := range all {
			e.woke(t, "Redisson twice, each through a lockproxy, "+column+": latch", waiter.ok(t, "a waiter").Sub(released))
		}
	}
}
