package session

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/inforce"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// patience is far above anything these tests wait for on an idle machine.
const patience = time.Minute

func TestMain(m *testing.M) {
	// golang-lru's expirable cleaner cannot be stopped; there is one in the process.
	testredis.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/golang-lru/v2/expirable.NewLRU[...].func1"))
}

// rounds is how often a test does what a fault would show in at every time: so many times in the long forms, fewer beside all other tests.
func rounds(long, short int) int {
	if os.Getenv("TESTS_LONG") == "1" {
		return long
	}
	return short
}

// notInMulti is what Redis says, and this proxy, to what is barred from transactions.
const notInMulti = "ERR Command not allowed inside a transaction"

// dialTime is for a connection to a Redis that is there, also when the machine stalls.
const dialTime = 10 * time.Second

// proxy is a Server with all that is under it, before a Redis.
type proxy struct {
	t    testing.TB
	srv  *Server
	addr string
	stop func()
}

// startProxy serves the Redis at url; change may alter the options.
func startProxy(t testing.TB, url string, change func(*ServerOptions)) *proxy {
	t.Helper()
	where, err := upstream.ParseURL(url)
	target := where.Target()
	if err != nil {
		t.Fatal(err)
	}
	log := testLog()
	node := upstream.NewNode(target, upstream.NodeOptions{Logger: log, DialTimeout: dialTime})
	control := upstream.NewControl(target, upstream.ControlOptions{Logger: log, DialTimeout: dialTime})
	o := ServerOptions{Upstream: Upstream{Node: node, Locks: lock.New(sharded.Single(control), testLocks(log)), Service: upstream.Identity{User: target.User, Password: target.Password}}, Logger: log}
	return serve(t, o, change, func() {
		control.Close()
		node.Close()
	})
}

// startBoth starts a Redis, with flags, and a proxy before it.
func startBoth(t testing.TB, change func(*ServerOptions), flags ...string) (*testredis.Server, *proxy) {
	t.Helper()
	server := testredis.Start(t, flags...)
	return server, startProxy(t, server.URL(), change)
}

// startProxyOf is startProxy before a cluster.
func startProxyOf(t testing.TB, redis *testredis.Cluster, change func(*ServerOptions), budget ...*upstream.Budget) *proxy {
	t.Helper()
	where, err := upstream.ParseURL("redis-cluster://" + redis.Servers[0].Addr())
	target, _ := where.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	log := testLog()
	node := upstream.NodeOptions{Logger: log, DialTimeout: dialTime}
	for _, b := range budget {
		node.Budget = b
	}
	c := testredis.Opened(t, func() (*cluster.Cluster, error) {
		return cluster.Open(context.Background(), target, cluster.Options{Node: node})
	})
	return serve(t, ServerOptions{Upstream: Upstream{Cluster: c, Locks: lock.New(sharded.Cluster(c, ""), testLocks(log))}, Logger: log}, change, c.Close)
}

func testLog() *slog.Logger {
	if os.Getenv("TESTS_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.DiscardHandler)
}

func testLocks(log *slog.Logger) lock.ManagerOptions {
	return lock.ManagerOptions{Logger: log, Watchdog: 9 * time.Second, Poll: 500 * time.Millisecond}
}

// serve runs a server of o until the test ends, and then has what is below it closed.
func serve(t testing.TB, o ServerOptions, change func(*ServerOptions), closeUpstream func()) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveAt(t, ln, o, change, closeUpstream)
}

// serveAt is serve at a listener.
func serveAt(t testing.TB, ln net.Listener, o ServerOptions, change func(*ServerOptions), closeUpstream func()) *proxy {
	t.Helper()
	o.HandshakeTimeout, o.Version = patience, "test"
	if change != nil {
		change(&o)
	}
	if o.InForce == nil {
		o.InForce = func() inforce.State { return inforce.State{} }
	}
	p, locks := &proxy{t: t, srv: NewServer(o), addr: ln.Addr().String()}, o.Locks
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { _ = locks.Run(ctx) })
	parts.Go(func() {
		if err := p.srv.Serve(ln, downstream.Entry{}); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	p.stop = sync.OnceFunc(func() {
		drain, done := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer done()
		_ = p.srv.Shutdown(drain) // clients of the test may still be there
		cancel()
		parts.Wait()
		closeUpstream()
	})
	t.Cleanup(p.stop)
	eventually(t, "Redis' commands are learned", func() bool { return p.known() > 200 || o.Embedded })
	return p
}

// known is of how many commands the table has something to say.
func (p *proxy) known() (n int) {
	p.srv.facts.table.Load().All(func(*commandtable.Command) { n++ })
	return n
}

// wire is a raw connection: bytes go in, reply frames come out.
type wire struct {
	t    testing.TB
	conn net.Conn
	left []byte // read, and not taken yet
	room []byte // what left is read into
}

func dialWire(t testing.TB, addr string) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &wire{t: t, conn: conn}
}

func (w *wire) send(args ...string) { w.t.Helper(); w.raw(resp.AppendCommand(nil, args...)) }

func (w *wire) raw(b []byte) {
	w.t.Helper()
	if _, err := w.conn.Write(b); err != nil {
		w.t.Fatalf("write: %v", err)
	}
}

// frame reads one reply frame; io.EOF and the like as "<end>".
func (w *wire) frame() string {
	w.t.Helper()
	frame, err := w.tryFrame(patience)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "<nothing>"
	case err != nil:
		return "<end>"
	}
	return frame
}

func (w *wire) tryFrame(within time.Duration) (string, error) {
	w.conn.SetReadDeadline(time.Now().Add(within))
	var scan resp.Scanner
	var frame []byte
	for {
		n, done, err := scan.Scan(w.left)
		if err != nil {
			return "", err
		}
		frame = append(frame, w.left[:n]...)
		w.left = w.left[n:]
		if done {
			return string(frame), nil
		}
		if w.room == nil {
			w.room = make([]byte, 64<<10)
		}
		k, err := w.conn.Read(w.room) // all that was left has been taken
		if k == 0 && err != nil {
			return "", err
		}
		w.left = w.room[:k]
	}
}

// do sends one command and returns its reply frame.
func (w *wire) do(args ...string) string {
	w.t.Helper()
	w.send(args...)
	return w.frame()
}

// want reads the next frame and compares it.
func (w *wire) want(want string) {
	w.t.Helper()
	if got := w.frame(); got != want {
		w.t.Fatalf("got %q, want %q", got, want)
	}
}

func (w *wire) expect(want string, args ...string) {
	w.t.Helper()
	if got := w.do(args...); got != want {
		w.t.Fatalf("%q: got %q, want %q", args, got, want)
	}
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func startRedis(t testing.TB, args ...string) *testredis.Server {
	t.Helper()
	return testredis.Start(t, args...)
}
