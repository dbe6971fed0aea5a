package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// told is a line of the event log.
type told map[string]any

// has says whether it has these fields: name, value, name, value …. A text that ends in * is only how the value begins.
func (l told) has(fields ...any) bool {
	for i := 0; i < len(fields); i += 2 {
		got, want := l[fields[i].(string)], fields[i+1]
		begin, part := strings.CutSuffix(fmt.Sprint(want), "*")
		if text := fmt.Sprint(got); got == nil || text != fmt.Sprint(want) && !(part && strings.HasPrefix(text, begin)) {
			return false
		}
	}
	return true
}

// late says whether it is the grant, or the nil, that is wanted, which took long on a busy machine.
func (l told) late(want []any) bool {
	reason := map[any]string{"grant": "granted", "busy": "nil"}[want[1]]
	return reason != "" && l.has("event", "wait", "reason", reason) && l.has(want[2:]...)
}

// linesOf are the lines of event logs.
func linesOf(t *testing.T, files ...string) (all []told) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			one := told{}
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			all = append(all, one)
		}
	}
	return all
}

// TestEventLog: each kind of event comes from what causes it, whatever keeps the locks; the file is the operator's own,
// and may be emptied.
func TestEventLog(t *testing.T) {
	t.Parallel()
	for name, upstream := range map[string]func(t *testing.T) []string{
		"one Redis": func(t *testing.T) []string { return []string{"--upstream", testredis.Start(t).URL()} },
		"cluster": func(t *testing.T) []string {
			return []string{"--upstream", "redis-cluster://" + testredis.StartCluster(t, 3, 0).Servers[0].Addr()}
		},
		"quorum": func(t *testing.T) []string {
			flags := []string{"--upstream", testredis.Start(t).URL(), "--quorum-max-lease", "2s", "--lock-watchdog-timeout", "2s"}
			for _, node := range testredis.StartSet(t, 3) {
				flags = append(flags, "--quorum", node.URL())
			}
			return flags
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eventsAreLogged(t, name == "quorum", upstream(t))
		})
	}
}

func eventsAreLogged(t *testing.T, quorum bool, upstream []string) {
	addr, at, dir := freeAddr(t), freeAddr(t), t.TempDir()
	file, token := filepath.Join(dir, "events.json"), filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("a-token-of-the-page\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, append(upstream, "--listen", addr, "--admin-listen", at, "--admin-token-file", token, "--operators", "default",
		"--event-log", file, "--max-clients", "6", "--drain-timeout", "0")...)
	a, b, killed, ops := p.dial("tcp", addr), p.dial("tcp", addr), p.dial("tcp", addr), p.dial("tcp", addr)
	await(t, "a lock", func() bool { got, err := a.Do("LOCK", "first"); return got == "OK" && err == nil })
	expect(t, a, "OK", "CLIENT", "SETNAME", "pay<b>roll")
	do := func(c redis.Conn, call string) (any, error) {
		words := strings.Fields(call)
		return c.Do(words[0], redis.Args{}.AddFlat(words[1:])...)
	}

	expect(t, a, "OK", "LOCK", "k")
	if got, err := b.Do("LOCK", "k"); got != nil || err != nil {
		t.Error(got, err)
	}
	if got, err := do(b, "LOCK k BLOCK 1100"); got != nil || err != nil {
		t.Error(got, err)
	}
	gone := p.dial("tcp", addr)
	if err := errors.Join(gone.Send("LOCK", "k", "BLOCK", "0"), gone.Flush()); err != nil {
		t.Fatal(err)
	}
	await(t, "the wait", func() bool {
		got, err := redis.Values(ops.Do("LOCKPROXY", "WAITERS"))
		return len(got) == 1 && err == nil
	})
	gone.Close()
	await(t, "its end", func() bool {
		got, err := redis.Values(ops.Do("LOCKPROXY", "WAITERS"))
		return len(got) == 0 && err == nil
	})
	waits := make(chan error, 1)
	go func() { _, err := do(b, "LOCK k BLOCK 30000"); waits <- err }()
	await(t, "the wait", func() bool {
		got, err := redis.Values(ops.Do("LOCKPROXY", "WAITERS"))
		return len(got) == 1 && err == nil
	})
	time.Sleep(1100 * time.Millisecond)
	expect(t, a, int64(1), "UNLOCK", "k")
	if err := <-waits; err != nil {
		t.Fatal(err)
	}
	expect(t, a, "OK", "RLOCK", "r")
	expect(t, a, "OK", "WLOCK", "w")
	expect(t, a, "OK", "MULTILOCK", "2", "m1", "m2")
	expect(t, a, "OK", "LOCK", "n", "OWNER", "job", "PX", "2000") // the end of a lease below a second is not told
	expect(t, a, "OK", "LOCK", "odd\xff\n<b>")
	if !quorum {
		expect(t, a, "OK", "FAIRLOCK", "f")
	}
	if _, err := a.Do("UNLOCK", "never"); err == nil {
		t.Error("what nobody has is given back")
	}
	expect(t, ops, int64(1), "UNLOCK", "r", "READ", "FORCE")
	_, _ = b.Do("AUTH", "nobody", "wrong")
	_, _ = do(killed, "LOCK of-killed")
	id, err := redis.Int64(killed.Do("CLIENT", "ID"))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, ops, "info", "LOCKPROXY", "LOGLEVEL", "info")
	expect(t, ops, int64(1), "CLIENT", "KILL", "ID", id)
	for range 6 { // more than there are places for, but for those that are kept for operators
		if c, err := redis.Dial("tcp", addr); err == nil {
			t.Cleanup(func() { c.Close() })
			_, _ = c.Do("GET", "x")
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	old := file + ".1"
	await(t, "the end of the lease of n", func() bool {
		written := linesOf(t, file)
		return slices.ContainsFunc(written, func(l told) bool { return l.has("event", "end", "name", "n") })
	})
	written, err := os.ReadFile(file)
	if err := errors.Join(err, os.WriteFile(old, written, 0o600), os.Truncate(file, 0)); err != nil { // as logrotate's copytruncate
		t.Fatal(err)
	}
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.awaitLog("settings read again")
	if err := os.WriteFile(token, []byte("another-token-of-it\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.awaitLog("passwords reloaded")
	listed, err := redis.Values(ops.Do("LOCKPROXY", "EVENTS", "-1", "k"))
	if err != nil || len(listed) < 5 {
		t.Errorf("LOCKPROXY EVENTS: %d of that lock, %v", len(listed), err)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.exit()
	if len(linesOf(t, file)) == 0 {
		t.Error("nothing is in the file after it was emptied")
	}
	all := linesOf(t, old, file)
	for _, want := range [][]any{
		{"event", "start"},
		{"event", "grant", "verb", "LOCK", "name", "k", "db", 0, "kind", "plain", "owner", "*", "addr", "127.0.0.1:*", "user", "default", "client_name", "pay<b>roll"},
		{"event", "busy", "verb", "LOCK", "name", "k"},
		{"event", "wait", "verb", "LOCK", "name", "k", "reason", "nil", "waited_ms", "*"},
		{"event", "wait", "verb", "LOCK", "name", "k", "reason", "granted", "waited_ms", "*"},
		{"event", "wait", "verb", "LOCK", "name", "k", "reason", "its client has gone"},
		{"event", "release", "name", "k", "held_ms", "*", "client_name", "pay<b>roll"},
		{"event", "grant", "verb", "RLOCK", "name", "r", "kind", "read"},
		{"event", "grant", "verb", "WLOCK", "name", "w", "kind", "write"},
		{"event", "grant", "verb", "MULTILOCK", "name", "m1"},
		{"event", "grant", "verb", "MULTILOCK", "name", "m2"},
		{"event", "grant", "name", "n", "owner", "job"},
		{"event", "end", "name", "n", "owner", "job", "reason", "expired"},
		{"event", "grant", "name_base64", "b2Rk/wo8Yj4="},
		{"event", "refusal", "verb", "UNLOCK", "name", "never", "reason", "NOTHELD *"},
		{"event", "force", "name", "r", "kind", "read", "addr", "*"},
		{"event", "end", "name", "r", "kind", "read", "reason", "forced", "held_ms", "*", "client_name", "pay<b>roll"},
		{"event", "login", "user", "nobody", "addr", "*", "reason", "*"},
		{"event", "kill", "addr", "*", "reason", "by 127.0.0.1:*"},
		{"event", "act", "addr", "*", "user", "default", "reason", "LOGLEVEL info"},

		{"event", "refusal", "reason", "ERR max number of clients*", "addr", "127.0.0.1:*"},
		{"event", "reload", "reason", "OK*"}, {"event", "rotation", "reason", token}, {"event", "drain", "reason", "it begins"},
	} {
		if !slices.ContainsFunc(all, func(l told) bool { return l.has(want...) || l.late(want) }) {
			t.Errorf("no line has %q", want)
		}
	}
	fair := slices.ContainsFunc(all, func(l told) bool { return l.has("event", "*", "verb", "FAIRLOCK", "name", "f") })
	if fair == quorum {
		t.Error("FAIRLOCK:", fair)
	}
	if t.Failed() {
		for _, l := range all {
			t.Log(l)
		}
	}
}

// What cannot be a file of events is said at the start; what cannot be written later is one line of the log, and nobody
// waits for it.
func TestEventLogThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, says := range map[string]string{dir: "is a directory", pipe: "no such device", dir + "/no/such": "no such file"} {
		p := start(t, "--listen", freeAddr(t), "--event-log", file)
		if code := p.exit(); code != exitError || !strings.Contains(p.logged(), "event-log: open ") || !strings.Contains(p.logged(), says) {
			t.Errorf("%s: %d, %s", file, code, p.logged())
		}
	}
	addr := freeAddr(t)
	metrics := freeAddr(t)
	p := start(t, "--listen", addr, "--event-log", "/dev/full", "--metrics-listen", metrics)
	c := p.dial("tcp", addr)
	for i := range 5 {
		expect(t, c, "OK", "LOCK", fmt.Sprint("k", i))
		time.Sleep(150 * time.Millisecond)
	}
	p.awaitLog("events cannot be written")
	if text := textOf(t, "http://"+metrics+"/metrics"); !strings.Contains(text, "lockproxy_lines_dropped_total ") || strings.Contains(text, "lockproxy_lines_dropped_total 0\n") {
		t.Error("no metric tells of it")
	}
	if n := strings.Count(p.logged(), "events cannot be written"); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
}
