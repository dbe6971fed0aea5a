package session

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/slowlog"
)

// A command is in the slow log when it took at least as long as is said, once for all that were sent with it; waiting does not count.
func TestSlowCommands(t *testing.T) {
	t.Parallel()
	_, p := startBoth(t, func(o *Options) { o.Slow = time.Nanosecond })
	w, other := dialWire(t, p.addr), dialWire(t, p.addr)
	// find waits for the last entry of a command.
	find := func(name string) (e slowlog.Entry) {
		t.Helper()
		eventually(t, name+" is there", func() bool {
			all := p.srv.Operators().Slow().Latest(slowlog.Most)
			at := slices.IndexFunc(all, func(e slowlog.Entry) bool { return e.Args[0] == name })
			if at >= 0 {
				e = all[at]
			}
			return at >= 0
		})
		return e
	}
	w.expect("+OK\r\n", "CLIENT", "SETNAME", "me")
	p.srv.Operators().Slow().Reset()
	w.raw([]byte("SET k v\r\nGET k\r\nGET k\r\n"))
	for range 3 {
		w.frame()
	}
	if e := find("SET"); !slices.Equal(e.Args, []string{"SET", "k", "v"}) || e.Upstream <= 0 || e.Took < e.Upstream || e.Client != (slowlog.Client{Addr: w.conn.LocalAddr().String(), Name: "me", User: "default"}) {
		t.Errorf("a pipeline: %+v", e)
	}
	sent := 0
	for _, e := range p.srv.Operators().Slow().Latest(slowlog.Most) {
		sent += e.Commands
	}
	if sent != 3 {
		t.Errorf("%d commands of 3", sent)
	}
	w.do("AUTH", "user", "secret")
	if e := find("AUTH"); !slices.Equal(e.Args, []string{"AUTH", "(redacted)", "(redacted)"}) || e.Upstream >= 0 {
		t.Errorf("AUTH: %+v", e)
	}
	w.expect("+OK\r\n", "LOCK", "l")
	if e := find("LOCK"); !slices.Equal(e.Args, []string{"LOCK", "l"}) || e.Took <= 0 {
		t.Errorf("LOCK: %+v", e)
	}

	// waited is for how long something surely waits, before which the log is emptied.
	waited := func() time.Duration {
		p.srv.Operators().Slow().Reset()
		from := time.Now()
		time.Sleep(50 * time.Millisecond)
		return time.Since(from)
	}
	began := time.Now()
	other.send("LOCK", "l", "BLOCK", "0")
	eventually(t, "it waits", func() bool { return p.srv.o.Locks.Stats().Waiting == 1 })
	wait := waited()
	w.expect(":1\r\n", "UNLOCK", "l")
	other.want("+OK\r\n")
	if e, most := find("LOCK"), time.Since(began)-wait; e.Took > most {
		t.Errorf("LOCK counts %v, at most %v", e.Took, most)
	}
	began = time.Now()
	other.raw([]byte("BLPOP q 0\r\nCLIENT ID\r\n"))
	eventually(t, "it waits", func() bool { return strings.Contains(lineOf(t, p, w, other), " flags=b ") })
	wait = waited()
	w.expect(":1\r\n", "RPUSH", "q", "x")
	other.frame()
	other.frame()
	if e, most := find("CLIENT"), time.Since(began)-wait; e.Took > most {
		t.Errorf("CLIENT ID behind BLPOP counts %v, at most %v", e.Took, most)
	}
	for _, e := range p.srv.Operators().Slow().Latest(slowlog.Most) {
		if e.Args[0] == "BLPOP" {
			t.Errorf("%+v", e)
		}
	}

	// On a connection of the client's own: each command for itself, from the reply before it on, those that may wait only in a transaction.
	own := dialWire(t, p.addr)
	own.raw([]byte("MULTI\r\nSET k v\r\n"))
	own.do("BLPOP", "q", "0")
	own.do("ACL", "SETUSER", "u", ">secret")
	own.do("EXEC")
	p.srv.Operators().Slow().Reset()
	own.do("MULTI")
	own.do("SET", "k", strings.Repeat("x", 1000))
	own.do("BLPOP", "q", "0")
	own.do("ACL", "SETUSER", "u", ">secret")
	own.do("EXEC")
	for name, want := range map[string]string{"MULTI": "MULTI", "SET": "SET k " + strings.Repeat("x", 128) + "... (", "BLPOP": "BLPOP q 0", "ACL": "ACL SETUSER (redacted) (redacted)", "EXEC": "EXEC"} {
		if e := find(name); !strings.HasPrefix(strings.Join(e.Args, " "), want) || e.Took <= 0 || e.Upstream != e.Took || e.Addr != own.conn.LocalAddr().String() {
			t.Errorf("%s in a transaction: %+v", name, e)
		}
	}

	for _, limit := range []time.Duration{0, time.Hour} {
		if err := p.srv.Change(Limits{}, CommandRules{Slow: limit}); err != nil {
			t.Fatal(err)
		}
		p.srv.Operators().Slow().Reset()
		w.do("GET", "k")
		w.do("CLIENT", "ID")
		if n := p.srv.Operators().Slow().Len(); n != 0 {
			t.Errorf("%d are slower than %v", n, limit)
		}
	}
}

// What decides that a command is not slow costs no memory.
func TestQuickCommandsCostNothing(t *testing.T) {
	s := NewServer(Options{CommandRules: CommandRules{Slow: time.Hour}})
	if n := testing.AllocsPerRun(100, func() { s.process.IsSlow(time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
