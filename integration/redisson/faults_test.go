package redisson

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// The same faults for the locks of others: what becomes of a lock that one holds, and another one waits for.

var faultsPage = flag.String("faults-page", "", "the page that has the table between two lines: docs/FAULTS.md")

// kindOfLock is one library, or lockproxy. Its users are processes of their own.
type kindOfLock struct {
	name string
	user func(t testing.TB, addr string) user
}

// user takes one lock, renewed, over the Redis at its address.
type user interface {
	take(key string) error
	give(key string) error
	told(key string) time.Time // when it heard of the loss without asking; zero: it has not
	signal(s syscall.Signal)   // to its process
}

// remote is a user in a process that reads commands.
type remote struct {
	*thread
	hears bool // it knows lock.told
}

func (r *remote) take(key string) error { _, err := r.lock(lock{"plain", key}, 0); return err }
func (r *remote) give(key string) error { return r.unlock(lock{"plain", key}) }
func (r *remote) signal(s syscall.Signal) {
	_ = r.j.cmd.Process.Signal(s) // it lives
	if s == syscall.SIGKILL {
		<-r.j.ended
	}
}

func (r *remote) told(key string) time.Time {
	if !r.hears {
		return time.Time{}
	}
	text, err := r.do("told", lock{"plain", key})
	ms, _ := strconv.ParseInt(text, 10, 64)
	if err != nil || ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// spoken is a user of lockproxy's verbs, whose own proxy is before the Redis at its address. Its process is this one: to be killed is to have
// its connection closed, and to be stopped is to say nothing.
type spoken struct {
	t testing.TB
	*harness.Speaker
}

func (s *spoken) take(key string) error { return s.verb("+OK\r\n", "LOCK", key, "BLOCK", "0") }
func (s *spoken) give(key string) error { return s.verb(":1\r\n", "UNLOCK", key) }
func (s *spoken) verb(want string, words ...string) error {
	if got := s.Ask(words...); got.Frame != want {
		return fmt.Errorf("%q: %q, %v", words, got.Frame, got.Err)
	}
	return nil
}
func (s *spoken) told(key string) time.Time { return s.Told(key) }
func (s *spoken) signal(sig syscall.Signal) {
	if sig == syscall.SIGKILL {
		s.W.Close()
	}
}

// kindsOfLock are lockproxy, Redisson and redsync, each with a lease of three seconds.
func kindsOfLock(t *testing.T) []kindOfLock {
	version := strings.Split(*versions, ",")[0]
	java := build(t, version)
	redsync := harness.Project{Name: "redsync", Folder: "redsync", Tools: []string{"go"}, Build: [][]string{{"go", "build", "-o", "redsync", "."}}}
	dir := redsync.Ready(t)
	connect := func(j *jvm, addr string) *thread {
		j.connect(t, "faults", addr, "single")
		return &thread{j, "faults", "t1"}
	}
	return []kindOfLock{
		{"lockproxy", func(t testing.TB, addr string) user {
			p := harness.StartProxy(t, "redis://"+addr, "--lock-watchdog-timeout", watchdog.String())
			s, err := harness.NewSpeaker(t, p.Addr())
			if err != nil {
				t.Fatal(err)
			}
			return &spoken{t, s}
		}},
		{"Redisson " + version, func(t testing.TB, addr string) user {
			return &remote{connect(startJVM(t, java.project, java.dir, java.run), addr), false}
		}},
		{"redsync 4.18.1, extended each second", func(t testing.TB, addr string) user {
			cmd := exec.CommandContext(context.Background(), filepath.Join(dir, "redsync"))
			return &remote{connect(control(t, cmd), addr), true}
		}},
	}
}

// fault hurts a holder, or Redis, and says in mended what is to be undone when the waiter has had its chance.
type fault struct {
	what string
	hurt func(holder user, wire *testredis.Proxy, server *testredis.Server) (mended func())
}

var ofAll = []fault{
	{"the holder's process is killed", func(h user, _ *testredis.Proxy, _ *testredis.Server) func() { h.signal(syscall.SIGKILL); return nil }},
	{"the holder's process is stopped for three leases", func(h user, _ *testredis.Proxy, _ *testredis.Server) func() {
		h.signal(syscall.SIGSTOP)
		return func() { h.signal(syscall.SIGCONT) }
	}},
	{"the holder's link to Redis swallows everything for three leases", func(_ user, w *testredis.Proxy, _ *testredis.Server) func() {
		w.BlackHole()
		return w.Clear
	}},
	{"Redis begins again without its data", func(_ user, _ *testredis.Proxy, r *testredis.Server) func() {
		r.Forget()
		return func() {}
	}},
	{"its subscribers are cut off, and the holder gives the lock back", func(h user, _ *testredis.Proxy, r *testredis.Server) func() {
		cut(r)
		_ = h.give("k") // nobody waits for an answer that may be lost: the waiter's time tells
		return nil
	}},
	{"Redis is killed and comes back with its data", func(_ user, _ *testredis.Proxy, r *testredis.Server) func() { r.Restart(); return func() {} }},
}

// cut closes the connections of all subscribers.
func cut(r *testredis.Server) {
	c, err := redis.Dial("tcp", r.Addr())
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = c.Do("CLIENT", "KILL", "TYPE", "pubsub")
}

// TestInteropFaults does the same to all of them, and tells what came of it.
func TestInteropFaults(t *testing.T) {
	if *faultsPage == "" {
		t.Skip("run by: make faults")
	}
	all := kindsOfLock(t)
	var b strings.Builder
	b.WriteString("| fault |")
	for _, r := range all {
		b.WriteString(" " + r.name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(all)) + "\n")
	for _, f := range ofAll {
		b.WriteString("| " + f.what + " |")
		for _, r := range all {
			t.Run(f.what+"/"+r.name, func(t *testing.T) { b.WriteString(" " + suffer(t, r, f) + " |") })
		}
		b.WriteByte('\n')
	}
	t.Log("\n" + b.String())
	text, err := os.ReadFile(*faultsPage)
	must(t, err, "the page")
	head, rest, begins := strings.Cut(string(text), "<!-- make faults, of others -->\n")
	_, tail, ends := strings.Cut(rest, "<!-- until here, of others -->\n")
	if !begins || !ends || t.Failed() {
		t.Fatal("the page has no place for the table, or something failed")
	}
	must(t, os.WriteFile(*faultsPage, []byte(head+"<!-- make faults, of others -->\n"+b.String()+"<!-- until here, of others -->\n"+tail), 0o644), "the page")
}

// suffer has one kind of lock suffer one fault, and says what came of it.
func suffer(t *testing.T, r kindOfLock, f fault) string {
	server := testredis.Start(t, "--appendonly yes", "--appendfsync always")
	wire := testredis.NewProxy(t, server.Addr())
	holder, waiter := r.user(t, wire.Addr()), r.user(t, server.Addr())
	must(t, holder.take("k"), "the holder")
	got := start(func() error { return waiter.take("k") })
	time.Sleep(watchdog)
	if !got.waiting() {
		t.Fatal("two hold it")
	}
	began := time.Now()
	mended := f.hurt(holder, wire, server)
	var had result
	select {
	case had = <-got.done:
		must(t, had.err, "the waiter")
	case <-time.After(3 * watchdog):
	}
	if mended == nil && had.at.IsZero() {
		return "nobody has it after three leases"
	}
	if mended == nil {
		return fmt.Sprintf("free after %.1f s", had.at.Sub(began).Seconds())
	}
	time.Sleep(time.Until(began.Add(3 * watchdog)))
	mended()
	if had.at.IsZero() {
		return "stays the holder's"
	}
	eventually(t, "the holder can ask again", func() bool { return holder.give("k") != nil })
	told := holder.told("k")
	text := fmt.Sprintf("another one has it after %.1f s; the holder ", had.at.Sub(began).Seconds())
	switch {
	case told.IsZero():
		return text + "hears of it when it unlocks"
	case told.Before(had.at):
		return text + fmt.Sprintf("was told %.2f s before", had.at.Sub(told).Seconds())
	}
	return text + fmt.Sprintf("was told %.2f s later", told.Sub(had.at).Seconds())
}
