package redisson

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
)

const (
	watchdog = 3 * time.Second        // of both sides
	poll     = 10 * time.Second       // of lockproxy's waiters, so that only a message can be quick
	long     = 60 * time.Second       // a lease whose end is far away
	settling = 150 * time.Millisecond // until who has subscribed waits for messages
)

// env is a place with two lockproxies, and a JVM with one version of Redisson.
type env struct {
	place
	program
	version string
	proxies []*harness.Proxy
	java    *jvm
	serial  atomic.Int64
	second  sync.Mutex // held by the test that runs a second JVM

	wakes wakeups
}

// program is Main.java, built with one version of Redisson.
type program struct {
	project harness.Project
	dir     string
	run     []string
}

func build(t *testing.T, version string) program {
	t.Helper()
	fetch, build, run := harness.Maven("-Dredisson=" + version)
	p := program{run: run, project: harness.Project{
		Name: "redisson-" + version, Folder: "java", Tools: []string{"java", "mvn"}, Fetch: fetch, Build: build,
	}}
	p.dir = p.project.Ready(t)
	return p
}

func newEnv(t *testing.T, version string, p program, where string) *env {
	t.Helper()
	e := &env{version: version, program: p, wakes: newWakeups()}
	e.place = newPlace(t, where)
	e.proxies = []*harness.Proxy{e.proxy(t, "--present", e.present), e.proxy(t)}
	e.java = e.jvm(t)
	e.warmUp(t)
	return e
}

// warmUp has the JVM load what waiting and waking need, whose first time is no figure.
func (e *env) warmUp(t testing.TB) {
	t.Helper()
	for _, kind := range []string{"plain", "fair"} {
		for _, who := range []string{beside, through, beside} {
			l, holder, waiter := e.lock(kind), e.party(t, who), e.party(t, beside)
			hold(t, holder, l, long)
			got := start(func() error { _, err := waiter.lock(l, long); return err })
			e.queued(t, l, 1)
			free(t, holder, l)
			got.ok(t, "the first waiter")
			free(t, waiter, l)
		}
	}
}

// forgets: before 3.32 a thread of Redisson in a fair queue may wait for a message without end, where nobody sends one.
func (e *env) forgets(kind string, s side) bool {
	_, java := s.(*thread)
	return java && kind == "fair" && e.version == oldest
}

func (e *env) proxy(t testing.TB, args ...string) *harness.Proxy {
	args = append([]string{"--lock-watchdog-timeout", watchdog.String(), "--wait-poll", poll.String()}, args...)
	if e.cluster != nil && e.version == oldest { // it neither sends nor hears sharded messages
		args = append(args, "--cluster-pubsub", "both")
	}
	return harness.StartProxy(t, e.url, args...)
}

// jvm starts a JVM with a client beside the proxies and one that goes through the first.
func (e *env) jvm(t testing.TB) *jvm {
	t.Helper()
	j := startJVM(t, e.project, e.dir, e.run)
	j.connect(t, beside, e.addr, e.mode)
	mode := "single"
	if e.present == "cluster" {
		mode = "cluster"
	}
	j.connect(t, through, e.proxies[0].Addr(), mode)
	return j
}

// The parties of a test: Redisson at Redis, Redisson with lockproxy as its server, and clients of lockproxy's verbs.
const (
	beside  = "Redisson"
	through = "Redisson through lockproxy"
	ours    = "lockproxy"
)

// party makes a new owner.
func (e *env) party(t testing.TB, who string) side {
	t.Helper()
	n := e.serial.Add(1)
	if who == ours {
		return dial(t, e.proxies[int(n)%len(e.proxies)].Addr())
	}
	return &thread{e.java, who, fmt.Sprint("t", n)}
}

// name is a name for a lock that no other test has.
func (e *env) name(kind string) string {
	n := e.serial.Add(1)
	if kind == "multi" {
		return fmt.Sprintf("multi-%d-a,multi-%d-b,multi-%d-c", n, n, n)
	}
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(kind, " ", ""), n)
}

func (e *env) lock(kind string) lock { return lock{kind, e.name(kind)} }

// prefixed is Redisson's rule for the names beside a lock.
func prefixed(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// queued waits until n wait for the lock, as Redis shows it, and a moment more for their last try before they wait.
// Of all but fair locks only the first waiter can be seen.
func (e *env) queued(t testing.TB, l lock, n int) {
	t.Helper()
	if l.kind == "fair" {
		e.inQueue(t, l, n)
		time.Sleep(settling)
		return
	}
	servers := e.dial(t)
	defer closeAll(servers)
	channel := "redisson_lock__channel"
	switch l.kind {
	case "read", "write":
		channel = "redisson_rwlock"
	case "limit 1", "limit 5":
		channel = "redisson_sc"
	}
	eventually(t, fmt.Sprintf("%d wait for %v", n, l), func() bool {
		return slices.ContainsFunc(l.members(), func(name string) bool { return e.heard(servers, prefixed(channel, name)) })
	})
	time.Sleep(settling)
}

// inQueue waits until exactly n stand in a fair lock's queue.
func (e *env) inQueue(t testing.TB, l lock, n int) {
	t.Helper()
	queue := prefixed("redisson_lock_queue", l.name)
	c := e.server(t, queue).Dial(t)
	defer c.Close()
	eventually(t, fmt.Sprintf("%d stand in the queue of %v", n, l), func() bool {
		seen, err := redis.Int(c.Do("LLEN", queue))
		return err == nil && seen == n
	})
}

// holds is the count of all owners in a lock's hash, or of the places that are taken.
func (e *env) holds(t testing.TB, name string) (sum int) {
	t.Helper()
	if kind := e.server(t, name).Do(t, "TYPE", name); kind == "string" {
		n, err := redis.Int(e.server(t, name).Do(t, "ZCARD", "{"+name+"}:timeout"), nil)
		must(t, err, "counting places")
		return n
	}
	fields, err := redis.StringMap(e.server(t, name).Do(t, "HGETALL", name), nil)
	if err != nil {
		t.Fatal(err)
	}
	for field, count := range fields {
		if field == "mode" {
			continue
		}
		n, err := redis.Int([]byte(count), nil)
		if err != nil {
			t.Fatalf("%s: field %s is %q", name, field, count)
		}
		sum += n
	}
	return sum
}

func (e *env) pttl(t testing.TB, name string) time.Duration {
	t.Helper()
	n, err := redis.Int64(e.server(t, name).Do(t, "PTTL", name), nil)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(n) * time.Millisecond
}

// later is what a call that waits will say.
type later struct{ done chan result }

type result struct {
	err error
	at  time.Time
}

func start(f func() error) later {
	l := later{make(chan result, 1)}
	go l.run(f)
	return l
}

func (l later) run(f func() error) {
	err := f()
	l.done <- result{err, time.Now()}
}

// ok waits for a success and returns when it came.
func (l later) ok(t testing.TB, what string) time.Time {
	t.Helper()
	select {
	case r := <-l.done:
		if r.err != nil {
			t.Fatalf("%s: %v", what, r.err)
		}
		return r.at
	case <-time.After(3 * harness.Patience):
		t.Fatalf("%s: no answer", what)
		return time.Time{}
	}
}

// waiting says that there is no answer yet.
func (l later) waiting() bool { return len(l.done) == 0 }

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(harness.Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// must ends the test at an error.
func must(t testing.TB, err error, what string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func hold(t testing.TB, s side, l lock, lease time.Duration) {
	t.Helper()
	_, err := s.lock(l, lease)
	must(t, err, fmt.Sprint("locking ", l))
}

func free(t testing.TB, s side, l lock) {
	t.Helper()
	must(t, s.unlock(l), fmt.Sprint("unlocking ", l))
}

// tries says how trying a lock must end.
func tries(t testing.TB, s side, l lock, want bool) {
	t.Helper()
	if won, err := s.try(l, 0, 0); err != nil || won != want {
		t.Fatalf("trying %v: %v %v, want %v", l, won, err, want)
	}
}

// refused says that unlocking must fail.
func refused(t testing.TB, s side, l lock) {
	t.Helper()
	if err := s.unlock(l); err != errNotHeld {
		t.Fatalf("unlocking %v, which is somebody else's: %v", l, err)
	}
}
