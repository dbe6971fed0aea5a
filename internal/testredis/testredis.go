// Package testredis gives tests throw-away Redis servers (the machine's redis-server,
// or the program that TESTREDIS_SERVER names, on free loopback ports) and a TCP proxy in front of them that
// delays and cuts connections. Only tests import it.
package testredis

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	startAttempts = 5                // new ports tried when one is taken under our feet
	readyTimeout  = 20 * time.Second // from fork to the first answered PING; generous for loaded machines
	dialTimeout   = 5 * time.Second
	logTail       = 4 << 10 // bytes of redis-server's log shown when it does not start
)

var (
	errPortTaken = errors.New("port is taken")
	errNoTLS     = errors.New("the server was built without TLS")
)

// Server is one redis-server process without persistence. Its methods fail the
// test it was started for, so those that may fail belong on the test's goroutine.
type Server struct {
	t        testing.TB
	dir      string
	args     []string
	clock    *Clock // nil: the machine's
	file     string // the configuration file, if there is one
	password string
	port     int // settled when Start returns

	mu   sync.Mutex // guards what Restart replaces
	proc *Child
}

// Start runs a redis-server on a free loopback port, waits until it answers and
// stops it when the test ends. Each of args is one line of configuration in
// command line form, as "--requirepass secret" or "--maxmemory", "1mb"; URL, Do
// and Dial use the password of a "--requirepass". The test fails when there is
// no redis-server.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartSet(t, 1, args...)[0]
}

// NeedsProcesses skips the test under -short, which is the ring of tests that start no process (make quick).
func NeedsProcesses(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes, which -short does not")
	}
}

// StartSet starts so many servers side by side, each as Start does.
func StartSet(t testing.TB, n int, args ...string) []*Server {
	t.Helper()
	set := make([]*Server, n)
	for i := range set {
		set[i] = newServer(t, args)
	}
	startAll(t, set)
	return set
}

// StartWithClock is Start for a server that goes by a clock of its own, after a Restart, too.
func StartWithClock(t testing.TB, c *Clock, args ...string) *Server {
	t.Helper()
	// The kernel waits by its own clock: a thread of jemalloc that reads one set back finds that each of its waits is over, and spins.
	s := newServer(t, append(args, "--jemalloc-bg-thread no"))
	s.clock = c
	startAll(t, []*Server{s})
	return s
}

func newServer(t testing.TB, args []string) *Server {
	t.Helper()
	NeedsProcesses(t)
	if strings.Contains(strings.Join(args, " "), "cluster-enabled yes") {
		// Its own choice, 10000 above its port, is among those that outgoing connections have.
		args = append(slices.Clone(args), "--cluster-port "+strconv.Itoa(FreePort(t)))
	}
	return &Server{t: t, dir: t.TempDir(), args: args, password: passwordIn(args)}
}

// startAll starts servers side by side and returns when all of them answer.
func startAll(t testing.TB, all []*Server) {
	t.Helper()
	var group sync.WaitGroup
	failed := make([]error, len(all))
	if _, err := exec.LookPath(program()); err != nil {
		t.Fatalf("testredis: %v (Debian: apt-get install redis-server)", err)
	}
	for i, s := range all {
		t.Cleanup(s.cleanup)
		group.Go(func() { failed[i] = s.startSomewhere() })
	}
	group.Wait()
	err := errors.Join(failed...)
	if errors.Is(err, errNoTLS) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// startSomewhere starts the server on a free port.
func (s *Server) startSomewhere() (err error) {
	for range startAttempts {
		if s.port, err = freePort(); err == nil {
			err = s.launch()
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, errPortTaken):
			return fmt.Errorf("testredis: redis-server on port %d: %w\n%s", s.port, err, s.log())
		}
	}
	return fmt.Errorf("testredis: %d ports in a row were taken", startAttempts)
}

// Addr is the server's host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port())) }

// URL is the server's redis:// address, with the password of "--requirepass".
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr()}
	if s.password != "" {
		u.User = url.UserPassword("", s.password)
	}
	return u.String()
}

// Port is the server's TCP port; Restart keeps it.
func (s *Server) Port() int { return s.port }

// Pid is the process id of the redis-server now running, or of the last one.
func (s *Server) Pid() int { return s.process().Cmd.Process.Pid }

// Kill ends the server with SIGKILL and returns when the process is gone.
func (s *Server) Kill() { s.process().Kill() }

// Restart kills the server if it runs and starts an empty one with the same
// configuration on the same port.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	for deadline := time.Now().Add(readyTimeout); ; {
		err := s.launch()
		if err == nil {
			return
		}
		if !errors.Is(err, errPortTaken) || time.Now().After(deadline) {
			s.t.Fatalf("testredis: restart on port %d: %v\n%s", s.Port(), err, s.log())
		}
	}
}

// Forget is Restart for a server that keeps its data: it has lost them.
func (s *Server) Forget() {
	s.t.Helper()
	s.Kill()
	if err := os.RemoveAll(filepath.Join(s.dir, "appendonlydir")); err != nil {
		s.t.Fatal(err)
	}
	s.Restart()
}

// Stop freezes the server with SIGSTOP: connections stay open, nothing answers.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Cont lets a stopped server run on (SIGCONT).
func (s *Server) Cont() { s.signal(syscall.SIGCONT) }

// Do sends one command on a connection of its own and returns the reply in
// redigo's types (bulk strings are []byte). An error, Redis' own included, fails
// the test.
func (s *Server) Do(t testing.TB, args ...any) any {
	t.Helper()
	c, err := s.connect()
	if err != nil {
		t.Fatalf("testredis: dial %s: %v", s.Addr(), err)
	}
	defer c.Close()
	reply, err := c.Do(fmt.Sprint(args[0]), args[1:]...)
	if err != nil {
		t.Fatalf("testredis: %v: %v", args, err)
	}
	return reply
}

// ask is Do for a server that may be away, or frozen.
func (s *Server) ask(args ...any) (any, error) {
	c, err := s.connect()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return redis.DoWithTimeout(c, dialTimeout/5, fmt.Sprint(args[0]), args[1:]...)
}

// Dial opens a connection past every proxy; it is closed when t ends.
func (s *Server) Dial(t testing.TB) redis.Conn {
	t.Helper()
	c, err := s.connect()
	if err != nil {
		t.Fatalf("testredis: dial %s: %v", s.Addr(), err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *Server) connect() (redis.Conn, error) {
	return redis.Dial("tcp", s.Addr(),
		redis.DialConnectTimeout(dialTimeout), redis.DialPassword(s.password))
}

func (s *Server) process() *Child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.process().Signal(sig); err != nil {
		s.t.Fatalf("testredis: %v to redis-server: %v", sig, err)
	}
}

// launch starts a process on s.port and waits until it answers.
func (s *Server) launch() error {
	args := []string{"--port", strconv.Itoa(s.Port()), "--bind", "127.0.0.1", "--dir", s.dir}
	if s.file != "" {
		args = append([]string{s.file}, args...)
	} else {
		args = append(args, "--save", "", "--appendonly", "no")
	}
	args = append(args, s.args...)
	cmd := exec.Command(program(), args...)
	if s.clock != nil {
		cmd.Env = s.clock.env()
	}
	out, err := os.Create(s.logPath())
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	p, err := startChild(cmd)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.proc = p
	s.mu.Unlock()
	return s.waitReady(p)
}

func (s *Server) waitReady(p *Child) error {
	deadline := time.Now().Add(readyTimeout)
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		select {
		case <-p.exited:
			switch log := s.log(); {
			case strings.Contains(log, "Address already in use"):
				return errPortTaken
			case strings.Contains(log, "Failed finding TLS support"):
				return errNoTLS
			}
			return fmt.Errorf("exited at once: %v", p.Cmd.ProcessState)
		case <-time.After(pause):
		}
		err := s.ping()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			p.Kill()
			return fmt.Errorf("no answer within %v: %w", readyTimeout, err)
		}
	}
}

// ping succeeds once the server answers at all: a refusal such as NOAUTH comes
// from a server that is up, LOADING from one that is not yet.
func (s *Server) ping() error {
	c, err := s.connect()
	if err == nil {
		defer c.Close()
		_, err = c.Do("PING")
	}
	var refusal redis.Error
	if errors.As(err, &refusal) && !strings.HasPrefix(refusal.Error(), "LOADING") {
		return nil
	}
	return err
}

func (s *Server) cleanup() {
	if p := s.process(); p != nil {
		p.Kill()
	}
	Report(s.t, fmt.Sprint("redis-server on port ", s.Port()), s.logPath())
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "redis.log") }

// log is the end of what the process printed.
func (s *Server) log() string {
	b, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	if len(b) > logTail {
		b = b[len(b)-logTail:]
	}
	return string(b)
}

// passwordIn finds the value of requirepass in either spelling Start accepts.
func passwordIn(args []string) string {
	words := strings.Fields(strings.Join(args, " "))
	for i, w := range words[:max(len(words)-1, 0)] {
		if w == "--requirepass" {
			return words[i+1]
		}
	}
	return ""
}
