package harness

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// Proxy is one running lockproxy.
type Proxy struct {
	*testredis.Child
	T       testing.TB
	port    int
	metrics string
	logPath string
}

// StartProxy starts lockproxy before upstream (a URL; "" = the embedded store) on a free loopback port and waits until it
// answers PING (NOAUTH will do). It ends with the test; when that has failed its log is kept. Tests look at all keys of
// Redis: the registry of the proxies is there only if args say so.
func StartProxy(t testing.TB, upstream string, args ...string) *Proxy {
	t.Helper()
	return StartBinary(t, Binary(t), upstream, args...)
}

// LaunchProxy is StartProxy for an upstream that is not there yet.
func LaunchProxy(t testing.TB, upstream string, args ...string) *Proxy {
	t.Helper()
	return launch(t, Binary(t), upstream, args...)
}

// StartBinary is StartProxy with another lockproxy: see LastVersion.
func StartBinary(t testing.TB, binary, upstream string, args ...string) *Proxy {
	t.Helper()
	p := launch(t, binary, upstream, args...)
	p.waitReady()
	return p
}

func launch(t testing.TB, binary, upstream string, args ...string) *Proxy {
	t.Helper()
	p := &Proxy{T: t, port: testredis.FreePort(t), logPath: filepath.Join(t.TempDir(), "lockproxy.log")}
	p.metrics = net.JoinHostPort("127.0.0.1", strconv.Itoa(testredis.FreePort(t)))
	flags := []string{"--listen", p.Addr(), "--metrics-listen", p.metrics, "--drain-delay", "0"}
	if upstream != "" {
		flags = append(flags, "--upstream", upstream)
	}
	cmd := exec.Command(binary, append(flags, args...)...)
	t.Cleanup(p.report) // runs after the kill, which is registered later; a race or a panic fails the test
	p.Child = testredis.Launch(t, cmd, p.logPath)
	return p
}

func (p *Proxy) waitReady() {
	p.T.Helper()
	for end := time.Now().Add(Patience); ; time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("tcp", p.Addr()); err == nil {
			w := NewWire(p.T, c)
			reply, err := w.Try("PING")
			_ = c.Close()
			if err == nil && (reply == "+PONG\r\n" || strings.HasPrefix(reply, "-NOAUTH")) {
				return
			}
		}
		select {
		case <-p.Exited():
			p.T.Fatalf("lockproxy ended at once: %v", p.Cmd.ProcessState)
		default:
		}
		if time.Now().After(end) {
			p.T.Fatal("lockproxy does not answer PING")
		}
	}
}

// Log is what the process has logged so far.
func (p *Proxy) Log() string {
	b, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (p *Proxy) report() {
	text := p.Log()
	for _, end := range []string{"DATA RACE", "panic: ", "fatal error: "} { // the last is of the runtime: of a map that two write, or a deadlock
		if strings.Contains(text, end) {
			p.T.Errorf("lockproxy's log says %q", end)
		}
	}
	testredis.Report(p.T, fmt.Sprint("lockproxy on port ", p.port), p.logPath)
}

// Addr is where it listens, host:port.
func (p *Proxy) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// Port is the port of Addr.
func (p *Proxy) Port() int { return p.port }

// Pid is its process id.
func (p *Proxy) Pid() int { return p.Cmd.Process.Pid }

// MetricsAddr is where its Prometheus endpoint listens, host:port.
func (p *Proxy) MetricsAddr() string { return p.metrics }

// Stop freezes it.
func (p *Proxy) Stop() { p.Signal(syscall.SIGSTOP) }

// Cont lets it run on after Stop.
func (p *Proxy) Cont() { p.Signal(syscall.SIGCONT) }

// Term sends SIGTERM and waits for the end; it returns the exit code.
func (p *Proxy) Term() int {
	p.T.Helper()
	p.Signal(syscall.SIGTERM)
	return p.Exit(p.T)
}

func (p *Proxy) Signal(s syscall.Signal) {
	p.T.Helper()
	if err := p.Child.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.T.Fatal(err)
	}
}

// ClusterURL names one node, which is enough.
func ClusterURL(tc *testredis.Cluster) string { return "redis-cluster://" + tc.Servers[0].Addr() }

// StartClusterProxy is StartProxy before a cluster.
func StartClusterProxy(t *testing.T, tc *testredis.Cluster, args ...string) *Proxy {
	t.Helper()
	p := StartProxy(t, ClusterURL(tc), args...)
	p.AwaitProbe(64)
	return p
}

// AwaitProbe waits until the proxy has taken a lock for a try at each node, as it does at the start: DBSIZE, keyspace events and
// counts of commands show that. A LOCK waits for the try at its node: one key is enough before one Redis, 64 are for all nodes.
func (p *Proxy) AwaitProbe(keys int) {
	p.T.Helper()
	w := Dial(p.T, p.Addr())
	for i := range keys {
		if key := fmt.Sprint("try-", i); w.Do("LOCK", key) != "+OK\r\n" || w.Do("UNLOCK", key) != ":1\r\n" {
			return // there are no locks to be had here, or not yet
		}
	}
}
