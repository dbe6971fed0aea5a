package main

import (
	"fmt"
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
	reload("max-clients: 2\ndeny: [get, 'config|get']\nlog-level: debug\nlock-watchdog-timeout: 7s\n", "settings=[lock-watchdog-timeout]")
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
	for _, bad := range []string{"deny: [flushal]\n", "max-clients: many\n", "max-clients: 9\nno-such: 1\n", "", "# deny: get\n", "\n---\n", "{}\n"} {
		reload(bad, "the old ones stay")
	}
	if _, err := b.Do("GET", "k"); err == nil {
		t.Error("GET is not refused any more after settings that are not good")
	}
	reload("log-level: error\n", "settings read again")
	expect(t, a, "v", "GET", "k")
	expect(t, p.dial("tcp", addr), "PONG", "PING")
}

// A drain-delay that is not given stays that of the metrics-listen in force, which a reload does not change.
func TestReloadKeepsTheDrainDelayOfItsMetrics(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ start, reload, want string }{
		"metrics-listen gone":  {"metrics-listen: %s\n", "log-level: info\n", "delay=5s"},
		"metrics-listen came":  {"", "metrics-listen: %s\n", "delay=0s"},
		"drain-delay gone":     {"metrics-listen: %s\ndrain-delay: 1h\n", "metrics-listen: %s\n", "delay=5s"},
		"both gone":            {"metrics-listen: %s\ndrain-delay: 1h\n", "log-level: info\n", "delay=5s"},
		"drain-delay is given": {"metrics-listen: %s\n", "drain-delay: 10ms\n", "delay=10ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, metrics := filepath.Join(t.TempDir(), "lockproxy.yaml"), freeAddr(t)
			write := func(text string) {
				t.Helper()
				if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "%s", metrics)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(c.start)
			p := start(t, "--listen", freeAddr(t), "--config", file)
			p.awaitLog("serving")
			write(c.reload)
			p.cmd.Process.Signal(syscall.SIGHUP)
			p.awaitLog("settings read again")
			p.cmd.Process.Signal(syscall.SIGTERM)
			p.awaitLog(" " + c.want + " ")
		})
	}
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
		{"--check-config --listen 0.0.0.0:1", exitUsage, "loopback"},
		{"--check-config --listen 127.0.0.1:1 --upstream redis-cluster://127.0.0.1:1 --cluster-address-map nonsense", exitUsage, "not of the form from=to"},
	} {
		p := start(t, strings.Fields(c.args)...)
		if code := p.exit(); code != c.code || !strings.Contains(p.logged(), c.says) {
			t.Errorf("%s: exit code %d, want %d; says %s", c.args, code, c.code, p.logged())
		}
	}
}

// LOCKPROXY RELOAD does what SIGHUP does, with files of passwords, and answers what is wrong; DRAIN does what SIGTERM does.
func TestOperatorReloadsAndDrains(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--user service on >pw ~* &* +@all")
	addr, dir := freeAddr(t), t.TempDir()
	file, secret := filepath.Join(dir, "lockproxy.yaml"), filepath.Join(dir, "secret")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, "operators: default\n")
	write(secret, "pw\n")
	metrics := freeAddr(t)
	p := start(t, "--upstream", strings.Replace(server.URL(), "redis://", "redis://service@", 1), "--upstream-password-file", secret, "--listen", addr, "--config", file, "--metrics-listen", metrics, "--drain-delay", "0")
	awaitPage(t, "http://"+metrics+"/readyz", 200, "ok")
	ops, holder := p.dial("tcp", addr), p.dial("tcp", addr)
	expect(t, ops, "OK", "LOCKPROXY", "RELOAD")
	write(file, "operators: default\ndeny: get\nlock-watchdog-timeout: 7s\n")
	expect(t, ops, "OK; taken: deny; a restart is needed for: lock-watchdog-timeout", "LOCKPROXY", "RELOAD")
	fails := func(want string, words ...any) {
		t.Helper()
		if _, err := ops.Do(words[0].(string), words[1:]...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", words, err, want)
		}
	}
	fails("denied", "GET", "k")
	write(file, "operators: default\nmax-clients: many\n")
	fails("ERR the settings are not good, the old ones stay: max-clients: ", "LOCKPROXY", "RELOAD")
	fails("denied", "GET", "k")
	write(file, "")
	fails("ERR the settings are not good, the old ones stay: "+file+" holds no settings any more", "LOCKPROXY", "RELOAD")
	fails("denied", "GET", "k")
	write(file, "operators: default\n")
	if err := os.Remove(secret); err != nil {
		t.Fatal(err)
	}
	fails("; taken: deny", "LOCKPROXY", "RELOAD")
	fails("ERR passwords have changed but cannot be used: ", "LOCKPROXY", "RELOAD") // it is as wrong the second time
	if _, err := ops.Do("GET", "k"); err != nil {
		t.Errorf("GET is denied still: %v", err)
	}
	expect(t, holder, "OK", "LOCK", "l")
	expect(t, ops, "OK", "LOCKPROXY", "DRAIN")
	p.awaitLog("draining")
	if _, err := holder.Do("LOCK", "other"); err != nil && !strings.HasPrefix(err.Error(), "DRAINING") {
		t.Errorf("a holder's next LOCK: %v", err)
	}
	if n, err := redis.Int(holder.Do("UNLOCK", "l")); n != 1 || err != nil {
		t.Errorf("UNLOCK: %d, %v", n, err)
	}
	holder.Close()
	<-p.done
	if code := p.cmd.ProcessState.ExitCode(); code != exitOK {
		t.Errorf("it exits with %d", code)
	}
}

// What a reload has found in files is what it is remembered for, however it was asked for; a file that cannot be used is
// told of until it can.
func TestReloadTellsOfFiles(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--requirepass", "pw")
	addr, metrics, file := freeAddr(t), freeAddr(t), filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("pw")
	p := start(t, "--upstream", "redis://"+server.Addr(), "--upstream-password-file", file, "--listen", addr, "--metrics-listen", metrics, "--operators", "default")
	awaitPage(t, "http://"+metrics+"/readyz", 200, "ok")
	c := p.dial("tcp", addr)
	expect(t, c, "OK", "AUTH", "pw")
	told := func(good bool) {
		t.Helper()
		want := []string{`lockproxy_file_unusable{file="` + file + `"} 0`, "lockproxy_config_last_reload_success 1"}
		if !good {
			want = []string{`lockproxy_file_unusable{file="` + file + `"} 1`, "lockproxy_config_last_reload_success 0"}
		}
		for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			page := textOf(t, "http://"+metrics+"/metrics")
			if strings.Contains(page, want[0]) && strings.Contains(page, want[1]) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("no %q in %s", want, page)
			}
		}
		stats, err := redis.Values(c.Do("LOCKPROXY", "STATS"))
		if text := fmt.Sprintf("%s", stats); err != nil || strings.Contains(text, "config_last_reload OK") != good {
			t.Errorf("%s, %v", text, err)
		}
	}
	told(true)
	write("")
	if said, err := c.Do("LOCKPROXY", "RELOAD"); err == nil || !strings.Contains(err.Error(), "passwords have changed but cannot be used") {
		t.Errorf("%v, %v", said, err)
	}
	told(false)
	write("pw")
	expect(t, c, "OK", "LOCKPROXY", "RELOAD")
	told(true)
	write("")
	p.cmd.Process.Signal(syscall.SIGHUP)
	told(false)
}

// --check-config looks whether events can be written, and whether there is the sockets' group, and makes no file.
func TestCheckOfWhatIsWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		flag, value, says string
	}{
		{"--event-log", filepath.Join(dir, "new"), ""}, {"--event-log", "stdout", ""}, {"--event-log", dir, "event-log: open "},
		{"--event-log", filepath.Join(dir, "no", "such"), "event-log: open "},
		{"--unix-socket-group", "no-such-group", "unix-socket-group: "}, {"--unix-socket-group", "0", ""},
	} {
		p := start(t, "--check-config", "--listen", "unix://"+filepath.Join(dir, "s"), c.flag, c.value)
		want := exitOK
		if c.says != "" {
			want = exitUsage
		}
		if code := p.exit(); code != want || !strings.Contains(p.logged(), c.says) {
			t.Errorf("%s %s: %d, %s", c.flag, c.value, code, p.logged())
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
