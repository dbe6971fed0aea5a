package main

import (
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// SIGHUP never ends the process, whatever there is to reload.
func TestHangupDoesNotEnd(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--upstream", testredis.Start(t).URL()}} {
		addr := freeAddr(t)
		p := start(t, append(args, "--listen", addr, "--drain-timeout", "300ms")...)
		c := p.dial("tcp", addr)
		expect(t, c, "OK", "LOCK", "l")
		for range 3 {
			if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			expect(t, c, "PONG", "PING")
		}
		p.cmd.Process.Signal(syscall.SIGTERM)
		p.cmd.Process.Signal(syscall.SIGHUP)
		if code := p.exit(); code != exitOK {
			t.Errorf("%q: exit code %d", args, code)
		}
	}
}

// SIGTERM ends a process that still waits for its cluster in the same way as one that serves.
func TestStoppedWhileItStarts(t *testing.T) {
	t.Parallel()
	p := start(t, "--listen", freeAddr(t), "--upstream", "redis-cluster://"+freeAddr(t))
	p.awaitLog("the cluster is not there yet")
	p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.exit(); code != exitOK || strings.Contains(p.logged(), "level=ERROR") {
		t.Errorf("exit code %d, %s", code, p.logged())
	}
}

// A name that no command has is a mistake, which ends the process at the start.
func TestDenyOfNoCommand(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := start(t, "--listen", freeAddr(t), "--upstream", server.URL(), "--deny", "flushal,get,client|kil")
	if code := p.exit(); code != exitError || !strings.Contains(p.logged(), "no command has the name flushal, client|kil") {
		t.Errorf("exit code %d, %s", code, p.logged())
	}
	addr := freeAddr(t)
	p = start(t, "--listen", addr, "--upstream", server.URL(), "--deny", "flushall,client|kill,lock", "--allow", "debug")
	expect(t, p.dial("tcp", addr), "PONG", "PING")
}

// The default is half of what Go finds, not of what the machine has.
func TestProcessors(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for found, want := range map[int]int{1: 1, 2: 1, 7: 3, 64: 32} {
		runtime.GOMAXPROCS(found)
		if useHalf(); runtime.GOMAXPROCS(0) != want {
			t.Errorf("%d of %d processors, not %d", runtime.GOMAXPROCS(0), found, want)
		}
	}
}
