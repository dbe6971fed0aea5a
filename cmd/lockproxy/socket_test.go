package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/inforce"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// ask has an operator ask at the admin socket, over a connection of its own that begins as redis-cli -3 does.
func ask(t *testing.T, socket string, name string, args ...any) (any, error) {
	t.Helper()
	c, err := redis.Dial("unix", socket, redis.DialReadTimeout(patience))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	// redigo reads no maps: the connection is one of RESP2 again when it asks.
	if hello, err := redis.Values(c.Do("HELLO", 2)); err != nil || len(hello) != 14 {
		t.Errorf("HELLO: %q, %v", hello, err)
	}
	return c.Do(name, args...)
}

// answers says that the admin socket answers whatever it should, however Redis is.
func answers(t *testing.T, socket string) {
	t.Helper()
	for call, want := range map[string]string{
		"PING": "PONG", "LOCKPROXY STATS": "uptime_in_seconds", "LOCKPROXY LOCKS": "", "LOCKPROXY NODES": "role", "INFO": "# Lockproxy",
		"CLIENT LIST": "cmd=client|list", "CLIENT INFO": "cmd=client|info", "COMMAND COUNT": "12", "COMMAND DOCS lockproxy": "about this proxy",
		"CLIENT SETINFO lib-name x": "OK", "RESET": "RESET",
	} {
		words := strings.Fields(call)
		rest := []any{}
		for _, w := range words[1:] {
			rest = append(rest, w)
		}
		got, err := ask(t, socket, words[0], rest...)
		if text := strings.ReplaceAll(fmt.Sprintf("%s", got), "\r\n", " "); err != nil || !strings.Contains(text, want) && text != fmt.Sprintf("%%!s(int64=%s)", want) {
			t.Errorf("%s: %s, %v", call, text, err)
		}
	}
	for _, call := range [][]any{{"GET", "x"}, {"SELECT", 1}, {"AUTH", "x"}, {"LOCK", "l"}, {"CLIENT", "PAUSE", 1}, {"MULTI"}, {"NOSUCH"}, {"HELLO", 3, "AUTH", "a", "b"}} {
		if _, err := ask(t, socket, call[0].(string), call[1:]...); err == nil || !strings.Contains(err.Error(), "this is lockproxy's admin socket") {
			t.Errorf("%v: %v", call, err)
		}
	}
}

// A proxy that is full answers operators at the admin socket, who make room, and see it drain until its end.
func TestAdminSocket(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--requirepass", "secret")
	addr, socket := freeAddr(t), filepath.Join(t.TempDir(), "admin")
	p := start(t, "--upstream", "redis://:secret@"+server.Addr(), "--listen", addr, "--admin-socket", socket, "--max-clients", "2")
	p.awaitLog("msg=serving listen=" + socket)
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	var inside []redis.Conn
	for range 2 {
		c := p.dial("tcp", addr)
		expect(t, c, "OK", "AUTH", "secret")
		inside = append(inside, c)
	}
	expect(t, inside[0], "OK", "LOCK", "l")
	third, err := redis.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := third.Do("PING"); err == nil || !strings.Contains(err.Error(), "max number of clients") {
		t.Errorf("a third client: %v", err)
	}
	third.Close()
	answers(t, socket)
	isHealthy(t, 0, "PONG", "--live", "--listen", addr, "--admin-socket", socket)
	isHealthy(t, 0, "PONG", "--listen=", "--tls-listen", "systemd:x", "--tls-cert", "x", "--tls-key", "x", "--admin-socket", socket)
	id, err := redis.Int64(inside[1].Do("CLIENT", "ID"))
	if err != nil {
		t.Fatal(err)
	}
	if killed, err := redis.Int(ask(t, socket, "CLIENT", "KILL", "ID", id)); killed != 1 || err != nil {
		t.Errorf("killed %d, %v", killed, err)
	}
	await(t, "there is room again", func() bool {
		c, err := redis.Dial("tcp", addr)
		if err != nil {
			return false
		}
		defer c.Close()
		_, err = c.Do("AUTH", "secret")
		return err == nil
	})
	// What the socket's clients may is no other client's.
	await(t, "a stranger is refused", func() bool {
		stranger := p.dial("tcp", addr)
		defer stranger.Close()
		_, err := stranger.Do("CLIENT", "LIST")
		if err == nil {
			t.Fatal("a stranger sees all clients")
		}
		return strings.Contains(err.Error(), "NOAUTH")
	})
	server.Stop()
	answers(t, socket)
	server.Cont()
	watching := p.dial("unix", socket)
	expect(t, watching, "OK", "LOCKPROXY", "DRAIN")
	await(t, "nobody is let in", func() bool { _, err := redis.Dial("tcp", addr); return err != nil })
	if list, err := redis.String(ask(t, socket, "CLIENT", "LIST")); err != nil || !strings.Contains(list, "user=default") {
		t.Errorf("%q, %v", list, err)
	}
	pairs, err := redis.Values(ask(t, socket, "LOCKPROXY", "STATS"))
	stats := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		stats[fmt.Sprintf("%s", pairs[i])] = strings.TrimPrefix(fmt.Sprintf("%s", pairs[i+1]), "%!s(int64=")
	}
	if err != nil || !strings.Contains(stats["drain_waits_for"], "clients that held locks: 1;") || !strings.Contains(stats["drain_waits_for"], "holds l") {
		t.Errorf("STATS of a drain: %q, %v", stats, err)
	}
	if left, err := strconv.Atoi(strings.TrimSuffix(stats["drain_ends_in_ms"], ")")); err != nil || left < 1 || left > 20000 {
		t.Errorf("the drain ends in %q ms", stats["drain_ends_in_ms"])
	}
	expect(t, watching, "PONG", "PING") // it stays, as long as somebody holds a lock
	answers(t, socket)
	isHealthy(t, 1, "refused", "--listen", addr, "--admin-socket", socket)
	isHealthy(t, 0, "PONG", "--live", "--listen", addr, "--admin-socket", socket)
	expect(t, inside[0], int64(1), "UNLOCK", "l")
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket is left")
	}
}

// The level of the log is another one until the next reload.
func TestLogLevel(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "admin")
	p := start(t, "--listen", freeAddr(t), "--admin-socket", socket)
	c := p.dial("unix", socket)
	expect(t, c, "info", "LOCKPROXY", "LOGLEVEL")
	expect(t, c, "debug", "LOCKPROXY", "LOGLEVEL", "DEBUG")
	p.dial("unix", socket).Close()
	p.awaitLog("level=DEBUG")
	p.awaitLog("asks=\"LOGLEVEL DEBUG\"")
	if _, err := c.Do("LOCKPROXY", "LOGLEVEL", "loud"); err == nil || !strings.Contains(err.Error(), "unknown name") {
		t.Error(err)
	}
	expect(t, c, "debug", "LOCKPROXY", "LOGLEVEL")
	expect(t, c, "OK", "LOCKPROXY", "RELOAD")
	expect(t, c, "info", "LOCKPROXY", "LOGLEVEL")
}

// Of more clients than have a place, the newest ones stay.
func TestAdminSocketHasRoom(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "admin")
	p := start(t, "--listen", freeAddr(t), "--admin-socket", socket)
	var all []redis.Conn
	for range 20 {
		c := p.dial("unix", socket)
		if _, err := c.Do("LOCKPROXY", "STATS"); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for i, c := range all {
		if _, err := c.Do("PING"); (err == nil) != (i >= len(all)-8) {
			t.Errorf("client %d: %v", i, err)
		}
	}
}

// The socket of a process that has died is taken over, that of one that lives is not; with reuse-port they take turns.
func TestAdminSocketChangesHands(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	socket := filepath.Join(t.TempDir(), "admin")
	with := func(more ...string) []string {
		return append([]string{"--upstream", server.URL(), "--listen", freeAddr(t), "--admin-socket", socket}, more...)
	}
	first := start(t, with()...)
	first.dial("unix", socket)
	second := start(t, with()...)
	if code := second.exit(); code != exitError || !strings.Contains(second.logged(), "another process listens there") {
		t.Errorf("exit code %d, %s", code, second.logged())
	}
	first.cmd.Process.Kill()
	first.exit()
	first = start(t, with("--reuse-port", "yes")...) // over the socket that is left
	expect(t, first.dial("unix", socket), "PONG", "PING")
	second = start(t, with("--reuse-port", "yes")...)
	second.awaitLog("will be this one's")
	holder := first.dial("unix", socket)
	first.cmd.Process.Signal(syscall.SIGTERM)
	first.exit()
	holder.Close()
	second.awaitLog("msg=serving listen=" + socket)
	expect(t, second.dial("unix", socket), "PONG", "PING")
	second.cmd.Process.Signal(syscall.SIGTERM)
	if code := second.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket is left")
	}
	if p := start(t, "--admin-socket", "relative"); p.exit() != exitUsage {
		t.Error("a relative path is taken")
	}
	if p := start(t, "--listen", "unix://"+socket, "--admin-socket", socket); p.exit() != exitUsage || !strings.Contains(p.logged(), "named twice") {
		t.Errorf("clients and operators at one socket: %s", p.logged())
	}
}

// Whatever is upstream: operators are answered while all of it is away, or hangs.
func TestAdminSocketWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"away", "cluster", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			socket := filepath.Join(t.TempDir(), "admin")
			args := []string{"--listen", freeAddr(t), "--admin-socket", socket, "--upstream", "redis://" + freeAddr(t)}
			var hang []*testredis.Server
			switch kind {
			case "cluster":
				hang = testredis.StartCluster(t, 3, 0).Servers
				args[5] = "redis-cluster://" + hang[0].Addr()
			case "quorum":
				for range 4 {
					hang = append(hang, testredis.Start(t))
				}
				args[5] = hang[3].URL()
				args = append(args, "--quorum", hang[0].URL()+","+hang[1].URL()+","+hang[2].URL())
			}
			p := start(t, args...)
			p.dial("unix", socket)
			for _, s := range hang {
				s.Stop()
			}
			began := time.Now()
			answers(t, socket)
			if took := time.Since(began); took > patience {
				t.Errorf("it took %v", took)
			}
			for _, s := range hang {
				s.Cont()
				s.Kill()
			}
			answers(t, socket)
			p.cmd.Process.Signal(syscall.SIGTERM)
			p.exit()
		})
	}
}

// The page shows the files that settings name, and what became of a new password.
func TestPageShowsFiles(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--requirepass", "secret")
	authority := testredis.NewAuthority(t)
	cert, key := authority.Issue("localhost")
	password := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		if err := os.WriteFile(password, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	write("secret")
	at := freeAddr(t)
	start(t, "--upstream", "redis://"+server.Addr(), "--upstream-password-file", password, "--listen=", "--tls-listen", freeAddr(t), "--tls-cert", cert, "--tls-key", key,
		"--tls-client-ca", authority.File, "--admin-listen", at).awaitLog("the page for operators is there")
	shows := func(what string, so func(files map[string]inforce.File) bool) {
		t.Helper()
		await(t, what, func() bool {
			var state inforce.State
			text := textOf(t, "http://"+at+"/settings.json")
			if err := json.Unmarshal([]byte(text), &state); err != nil || strings.Contains(text, "secret") {
				t.Fatalf("%v: %s", err, text)
			}
			files := map[string]inforce.File{}
			for _, f := range state.Files {
				files[f.Name] = f
			}
			return len(files) == 3 && so(files)
		})
	}
	left := func(f inforce.File) time.Duration {
		if f.Ends == nil {
			return 0
		}
		return time.Until(*f.Ends)
	}
	var since time.Time
	shows("all files", func(files map[string]inforce.File) bool {
		since = files[password].Since
		return left(files[cert]) > 0 && left(files[authority.File]) > 0 && files[password].Ends == nil && files[password].Trouble == ""
	})
	write("")
	shows("a password that is none", func(files map[string]inforce.File) bool {
		return strings.Contains(files[password].Trouble, "holds no password") && files[password].Since.Equal(since)
	})
	write("secret")
	shows("the password again", func(files map[string]inforce.File) bool { return files[password].Trouble == "" })
	write("another secret")
	shows("another password", func(files map[string]inforce.File) bool { return files[password].Since.After(since) })
	write("secret")
}
