package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// SIGHUP takes on what the file says now if all of it is good, for clients that are there, and names what needs a restart.
func TestReload(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	addr := freeAddr(t)
	file := filepath.Join(t.TempDir(), "lockproxy.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("max-clients: 3\n")
	metrics := freeAddr(t)
	p := start(t, "--upstream", server.URL(), "--listen", addr, "--config", file, "--metrics-listen", metrics)
	awaitPage(t, "http://"+metrics+"/readyz", 200, "ok") // it knows the names of Redis' commands
	a, b := p.dial("tcp", addr), p.dial("tcp", addr)
	expect(t, a, "OK", "SET", "k", "v")
	expect(t, b, "v", "GET", "k")
	reloads := 0
	reload := func(text, logs string) {
		t.Helper()
		before := strings.Count(p.logged(), logs)
		write(text)
		p.cmd.Process.Signal(syscall.SIGHUP)
		for end := time.Now().Add(patience); strings.Count(p.logged(), logs) == before; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("after reload %d it never logs %q", reloads, logs)
			}
		}
		reloads++
	}
	reload("max-clients: 2\ndeny: [get, 'config|get']\nlog-level: debug\nwarm-channels: 7\n", "settings=[warm-channels]")
	p.awaitLog("changed=\"[deny log-level max-clients]\"")
	for name, args := range map[string][]any{"GET": {"k"}, "CONFIG": {"GET", "save"}} {
		if _, err := a.Do(name, args...); err == nil {
			t.Errorf("%s %v is not refused", name, args)
		}
	}
	if c, err := redis.Dial("tcp", addr); err == nil {
		if _, err := c.Do("PING"); err == nil {
			t.Error("a third client is let in")
		}
		c.Close()
	}
	for _, bad := range []string{"deny: [flushal]\n", "max-clients: many\n", "max-clients: 9\nno-such: 1\n"} {
		reload(bad, "the old ones stay")
	}
	if _, err := b.Do("GET", "k"); err == nil {
		t.Error("GET is not refused any more after settings that are not good")
	}
	reload("log-level: error\n", "settings read again")
	expect(t, a, "v", "GET", "k")
	expect(t, p.dial("tcp", addr), "PONG", "PING")
}

func TestCheckConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"--check-config", exitOK, ""},
		{"--check-config --listen 127.0.0.1:1 --max-clients 0", exitUsage, "max-clients: 0"},
		{"--check-config --tls-listen 127.0.0.1:1 --tls-cert /no/such --tls-key /no/such", exitUsage, "tls-listen: open /no/such"},
	} {
		p := start(t, strings.Fields(c.args)...)
		if code := p.exit(); code != c.code || !strings.Contains(p.logged(), c.says) {
			t.Errorf("%s: exit code %d, want %d; says %s", c.args, code, c.code, p.logged())
		}
	}
}
