package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/config"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// awaitPage waits until a page answers so.
func awaitPage(t *testing.T, url string, code int, begins string) {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	for end, last := time.Now().Add(patience), ""; ; time.Sleep(10 * time.Millisecond) {
		resp, err := client.Get(url)
		if err == nil {
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if last = fmt.Sprint(resp.StatusCode, " ", string(body)); resp.StatusCode == code && strings.HasPrefix(string(body), begins) {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%s never answers %d %s: %s, %v", url, code, begins, last, err)
		}
	}
}

// /readyz follows Redis, and says that the process stops while it still serves everybody.
func TestReadyz(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	addr, metrics := freeAddr(t), freeAddr(t)
	p := start(t, "--upstream", server.URL(), "--listen", addr, "--metrics-listen", metrics, "--drain-delay", "1m")
	awaitPage(t, "http://"+metrics+"/readyz", 200, "ok")
	awaitPage(t, "http://"+metrics+"/livez", 200, "ok")
	server.Stop()
	awaitPage(t, "http://"+metrics+"/readyz", 503, "upstream: ")
	awaitPage(t, "http://"+metrics+"/livez", 200, "ok")
	server.Cont()
	awaitPage(t, "http://"+metrics+"/readyz", 200, "ok")
	p.cmd.Process.Signal(syscall.SIGTERM)
	awaitPage(t, "http://"+metrics+"/readyz", 503, "draining")
	awaitPage(t, "http://"+metrics+"/livez", 200, "ok")
	late := p.dial("tcp", addr)
	expect(t, late, "OK", "LOCK", "l")
	p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.exit(); code != exitForce {
		t.Errorf("exit code %d", code)
	}
}

// A Redis that has become a replica refuses writes: the process is not ready until it is the master again, or the address leads to the master.
func TestReadyzBeforeAReplica(t *testing.T) {
	t.Parallel()
	both := testredis.StartSet(t, 2)
	metrics := freeAddr(t)
	start(t, "--upstream", both[0].URL(), "--listen", freeAddr(t), "--metrics-listen", metrics)
	awaitPage(t, "http://"+metrics+"/readyz", 200, "ok")
	host, port, _ := strings.Cut(both[1].Addr(), ":")
	both[0].Do(t, "REPLICAOF", host, port)
	awaitPage(t, "http://"+metrics+"/readyz", 503, "upstream: the Redis at the address is a replica")
	both[0].Do(t, "REPLICAOF", "NO", "ONE")
	awaitPage(t, "http://"+metrics+"/readyz", 200, "ok")
}

// A process that ends by a mistake in its settings is not ready while it waits for those that hold locks.
func TestReadyzOfAMistake(t *testing.T) {
	t.Parallel()
	addr, metrics := freeAddr(t), freeAddr(t)
	cfg, err := config.Parse([]string{"--listen", addr, "--metrics-listen", metrics, "--drain-timeout", patience.String()})
	if err != nil {
		t.Fatal(err)
	}
	log, level := newLogger(cfg, os.Stderr)
	a, err := newApp(t.Context(), newSettings(cfg, nil, level, func() {}), log)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.run(t.Context()) }()
	awaitPage(t, "http://"+metrics+"/readyz", 200, "ok")
	holder, err := redis.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	expect(t, holder, "OK", "LOCK", "l")
	mistake := errors.New("no such command")
	a.mistaken(mistake)
	awaitPage(t, "http://"+metrics+"/readyz", 503, "draining")
	if n, err := redis.Int(holder.Do("UNLOCK", "l")); n != 1 || err != nil {
		t.Errorf("UNLOCK: %d, %v", n, err)
	}
	if err := <-ended; err != mistake {
		t.Errorf("it ends by %v", err)
	}
}

// A quorum without its majority is not ready, and neither is a process that has never reached Redis.
func TestReadyzOfAQuorum(t *testing.T) {
	t.Parallel()
	server, a, b := testredis.Start(t), testredis.Start(t, "--requirepass", "secret"), testredis.Start(t, "--requirepass", "secret")
	metrics := freeAddr(t)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, "--upstream", server.URL(), "--listen", freeAddr(t), "--metrics-listen", metrics,
		"--quorum", "redis://"+a.Addr()+",redis://"+b.Addr()+",redis://"+freeAddr(t), "--quorum-password-file", password, "--lock-watchdog-timeout", "1s", "--quorum-max-lease", "1s", "--quorum-node-timeout", "100ms")
	awaitPage(t, "http://"+metrics+"/readyz", 200, "ok")
	b.Stop()
	awaitPage(t, "http://"+metrics+"/readyz", 503, "quorum: ")
	b.Cont()
	metrics = freeAddr(t)
	start(t, "--upstream", "redis://"+freeAddr(t), "--listen", freeAddr(t), "--metrics-listen", metrics)
	awaitPage(t, "http://"+metrics+"/readyz", 503, "commands: ")
}

func TestEnough(t *testing.T) {
	t.Parallel()
	hangs := func(ctx context.Context, what string) error {
		switch what {
		case "good":
			return nil
		case "bad":
			return errors.New("is bad")
		}
		<-ctx.Done()
		return ctx.Err()
	}
	for _, c := range []struct {
		all    string
		wanted int
		err    string
	}{
		{"good", 1, ""}, {"good hangs hangs", 1, ""}, {"hangs good bad good", 2, ""}, {"bad bad hangs", 2, "2 of 3 do not answer: is bad"},
		{"good bad bad", 2, "2 of 3 do not answer: is bad"},
	} {
		err := enough(t.Context(), c.wanted, strings.Fields(c.all), hangs)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.HasPrefix(err.Error(), c.err)) {
			t.Errorf("%d of %s: %v, want %q", c.wanted, c.all, err, c.err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := enough(ended, 1, []string{"hangs"}, func(context.Context, string) error { <-t.Context().Done(); return nil }); err == nil {
		t.Error("no error at the end of ctx")
	}
}

// systemd opens the sockets, is told of the start, of life and of the end; and clients that come between two processes wait.
func TestUnderSystemd(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip(err)
	}
	told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	socket, err := ln.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	server := testredis.Start(t)
	begin := func() *process {
		cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh", os.Args[0],
			"--upstream", server.URL(), "--listen", "systemd:clients", "--drain-timeout", "0")
		cmd.Env = append(os.Environ(), "LISTEN_FDS=1", "LISTEN_FDNAMES=clients", "WATCHDOG_USEC=60000000", "NOTIFY_SOCKET="+told.LocalAddr().String())
		cmd.ExtraFiles = []*os.File{socket}
		return startCommand(t, cmd)
	}
	await := func(what string) {
		t.Helper()
		told.SetReadDeadline(time.Now().Add(patience))
		for b := make([]byte, 1024); ; {
			n, err := told.Read(b)
			if err != nil {
				t.Fatalf("systemd is never told %s: %v", what, err)
			}
			if string(b[:n]) == what {
				return
			}
		}
	}
	for range 2 {
		p := begin()
		await("READY=1")
		await("WATCHDOG=1")
		expect(t, p.dial("tcp", ln.Addr().String()), "PONG", "PING")
		p.cmd.Process.Signal(syscall.SIGTERM)
		await("STOPPING=1")
		if code := p.exit(); code != exitOK {
			t.Errorf("exit code %d", code)
		}
	}
	c, err := net.Dial("tcp", ln.Addr().String()) // nobody serves now, and systemd keeps the socket
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	begin()
	c.SetReadDeadline(time.Now().Add(patience))
	if b := make([]byte, 7); true {
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "+PONG\r\n" {
			t.Errorf("a client that came in between: %q, %v", b, err)
		}
	}
}

func TestSocketThatSystemdHasNot(t *testing.T) {
	t.Parallel()
	p := start(t, "--listen", "systemd:clients", "--upstream", "redis://127.0.0.1:1")
	if code := p.exit(); code != exitError || !strings.Contains(p.logged(), "no stream socket of that name") {
		t.Errorf("exit code %d, %s", code, p.logged())
	}
}

// TestWhetherLocksCanBeHad: a Redis that answers and gives no locks is told of in all places, without a client's asking for a lock: /readyz, which
// says ok all the same, /metrics, INFO, LOCKPROXY NODES, the page and the log.
func TestWhetherLocksCanBeHad(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	addr, metrics, page := freeAddr(t), freeAddr(t), freeAddr(t)
	p := start(t, "--upstream", server.URL(), "--listen", addr, "--metrics-listen", metrics, "--admin-listen", page, "--operators", "default")
	awaitPage(t, "http://"+metrics+"/readyz", 200, "ok")
	c := p.dial("tcp", addr)
	defer c.Close()
	told := func(status, node, gauge string) {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			info, err := redis.String(c.Do("INFO", "lockproxy"))
			if err == nil && strings.Contains(info, "\r\nlockproxy_locks_status:"+status) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("INFO never says %s: %q, %v", status, info, err)
			}
		}
		nodes, err := redis.Values(c.Do("LOCKPROXY", "NODES"))
		if err != nil || len(nodes) != 1 {
			t.Fatal(nodes, err)
		}
		if fields, err := redis.StringMap(nodes[0], nil); err != nil || !strings.HasPrefix(fields["locks"], node) {
			t.Errorf("LOCKPROXY NODES: %q, %v", fields, err)
		}
		if text := textOf(t, "http://"+metrics+"/metrics"); !strings.Contains(text, "\nlockproxy_locks_unavailable{reason=\"oom\"} "+gauge+"\n") {
			t.Errorf("/metrics does not say %s:\n%s", gauge, text)
		}
	}
	told("ok\r\n", "ok", "0")
	server.Do(t, "CONFIG", "SET", "maxmemory", "1")
	awaitPage(t, "http://"+metrics+"/readyz", 200, "ok\nlocks: OOM")
	told("OOM ", "OOM ", "1")
	if text := textOf(t, "http://"+page+"/"); !strings.Contains(text, "<b>no locks</b>") {
		t.Errorf("the page does not say it:\n%s", text)
	}
	p.awaitLog("no lock can be had: a trial lock could not be taken and released")
	server.Do(t, "CONFIG", "SET", "maxmemory", "0")
	p.awaitLog("locks can be had again")
	told("ok\r\n", "ok", "0")
}

func textOf(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
