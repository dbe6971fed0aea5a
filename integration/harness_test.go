package integration

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// patience bounds every wait for something that must happen: wide, because the machine may be busy.
const patience = 20 * time.Second

// binary is the lockproxy under test, built by TestMain.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "lockproxy-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "lockproxy")
	args := []string{"build", "-o", binary}
	if raceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "../cmd/lockproxy")...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building lockproxy:", err)
		return 1
	}
	return m.Run()
}

// child is a process that is killed with the test, and dies with the test binary.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and was waited for
}

// startChild starts cmd; its cleanup kills it.
func startChild(t testing.TB, cmd *exec.Cmd) *child {
	t.Helper()
	c := &child{cmd: cmd, done: make(chan struct{})}
	dieWithParent(cmd)
	started := make(chan error)
	go c.live(started)
	if err := <-started; err != nil {
		t.Fatalf("starting %s: %v", cmd.Path, err)
	}
	t.Cleanup(c.kill)
	return c
}

// live keeps its OS thread for as long as the child lives: the parent-death signal fires when the thread that forked ends.
func (c *child) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	started <- err
	if err == nil {
		_ = c.cmd.Wait() // whoever cares looks at the exit code
		close(c.done)
	}
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill() // fails only when it has ended already
	<-c.done
}

// exit waits for the end and returns the exit code, -1 after a signal.
func (c *child) exit(t testing.TB) int {
	t.Helper()
	select {
	case <-c.done:
		return c.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("%s does not end", c.cmd.Path)
		return -1
	}
}

// proxy is one running lockproxy.
type proxy struct {
	*child
	t       testing.TB
	port    int
	metrics string
	logPath string
}

// startProxy starts lockproxy before upstream (a URL; "" = the embedded store) on a free loopback port and waits until it
// answers PING (NOAUTH will do). It ends with the test; when that has failed its log is shown.
func startProxy(t testing.TB, upstream string, args ...string) *proxy {
	t.Helper()
	p := launchProxy(t, upstream, args...)
	p.waitReady()
	return p
}

// launchProxy is startProxy for an upstream that is not there yet.
func launchProxy(t testing.TB, upstream string, args ...string) *proxy {
	t.Helper()
	p := &proxy{t: t, port: testredis.FreePort(t), logPath: filepath.Join(t.TempDir(), "lockproxy.log")}
	p.metrics = net.JoinHostPort("127.0.0.1", strconv.Itoa(testredis.FreePort(t)))
	flags := []string{"--listen", p.Addr(), "--metrics-listen", p.metrics}
	if upstream != "" {
		flags = append(flags, "--upstream", upstream)
	}
	cmd := exec.Command(binary, append(flags, args...)...)
	log, err := os.Create(p.logPath)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	t.Cleanup(p.showLog) // runs after the kill, which is registered later; a race or a panic fails the test
	p.child = startChild(t, cmd)
	return p
}

func (p *proxy) waitReady() {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("tcp", p.Addr()); err == nil {
			w := newWire(p.t, c)
			reply, err := w.try("PING")
			_ = c.Close()
			if err == nil && (reply == "+PONG\r\n" || strings.HasPrefix(reply, "-NOAUTH")) {
				return
			}
		}
		select {
		case <-p.done:
			p.t.Fatalf("lockproxy ended at once: %v", p.cmd.ProcessState)
		default:
		}
		if time.Now().After(end) {
			p.t.Fatal("lockproxy does not answer PING")
		}
	}
}

// Log is what the process has logged so far.
func (p *proxy) Log() string {
	b, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (p *proxy) showLog() {
	text := p.Log()
	if strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic: ") {
		p.t.Error("lockproxy raced or panicked")
	}
	if !p.t.Failed() {
		return
	}
	if most := 16 << 10; len(text) > most {
		text = "…" + text[len(text)-most:]
	}
	p.t.Logf("lockproxy on port %d said:\n%s", p.port, text)
}

// Addr is where it listens, host:port.
func (p *proxy) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// Port is the port of Addr.
func (p *proxy) Port() int { return p.port }

// Pid is its process id.
func (p *proxy) Pid() int { return p.cmd.Process.Pid }

// MetricsAddr is where its Prometheus endpoint listens, host:port.
func (p *proxy) MetricsAddr() string { return p.metrics }

// Kill ends it as kill -9 does, and waits until it is gone.
func (p *proxy) Kill() { p.kill() }

// Stop freezes it.
func (p *proxy) Stop() { p.signal(syscall.SIGSTOP) }

// Cont lets it run on after Stop.
func (p *proxy) Cont() { p.signal(syscall.SIGCONT) }

// Term sends SIGTERM and waits for the end; it returns the exit code.
func (p *proxy) Term() int {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	return p.exit(p.t)
}

func (p *proxy) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// eventually waits until ok says true; what names it in the failure.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// together runs f(0) … f(n-1) side by side and waits for all; f must not call t.Fatal.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
