package session_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/session"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// The faults tested here hit one of the two wires to Redis only, the clients' commands' or the lock scripts', which a
// proxy of its own process cannot be made to do.

// longEnough is far above anything that these tests wait for on an idle machine.
const longEnough = time.Minute

// twoWires serves a proxy whose forwarded commands go to data and whose scripts go to control, both host:port.
// It returns the proxy's address.
func twoWires(t testing.TB, data, control string, o lock.ManagerOptions) string {
	t.Helper()
	addr, _ := serveTwoWires(t, data, control, o)
	return addr
}

// serveTwoWires is twoWires with the server, for those who look into it.
func serveTwoWires(t testing.TB, data, control string, o lock.ManagerOptions) (string, *session.Server) {
	t.Helper()
	o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	if os.Getenv("TESTS_LOG") != "" {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	node := upstream.NewNode(upstream.Target{Network: "tcp", Addr: data}, upstream.NodeOptions{Logger: o.Logger, DialTimeout: longEnough})
	ctl := upstream.NewControl(upstream.Target{Network: "tcp", Addr: control}, upstream.ControlOptions{Logger: o.Logger, DialTimeout: longEnough})
	locks := lock.New(sharded.Single(ctl), o)
	srv := session.NewServer(session.ServerOptions{Upstream: session.Upstream{Node: node, Locks: locks}, Appearance: session.Appearance{Version: "test"}, Logger: o.Logger})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { _ = locks.Run(ctx) })
	parts.Go(func() {
		if err := srv.Serve(ln, downstream.Entry{}); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(func() {
		drain, done := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer done()
		_ = srv.Shutdown(drain) // clients of the test may still be there
		cancel()
		parts.Wait()
		ctl.Close()
		node.Close()
	})
	return ln.Addr().String(), srv
}

// client is a connection that can be reset.
type client struct {
	redis.Conn
	tcp *net.TCPConn
}

func connect(t testing.TB, addr string) *client {
	t.Helper()
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{redis.NewConn(raw, longEnough, longEnough), raw.(*net.TCPConn)}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// reset hangs up with a RST; whatever the client has sent is on its way.
func (c *client) reset() {
	_ = c.tcp.SetLinger(0)
	_ = c.tcp.Close()
}

// say sends commands in one write, each given as one line, and waits for nothing.
func (c *client) say(lines ...string) error {
	for _, line := range lines {
		words := strings.Fields(line)
		if err := c.Send(words[0], redis.Args{}.AddFlat(words[1:])...); err != nil {
			return err
		}
	}
	return c.Flush()
}

// hear reads the next reply; errors of Redis' kind come as "-…", what breaks the connection as "!…".
func (c *client) hear() string {
	reply, err := c.Receive()
	if text, ok := err.(redis.Error); ok {
		return "-" + string(text)
	}
	if err != nil {
		return "!" + err.Error()
	}
	return show(reply)
}

func show(reply any) string {
	switch v := reply.(type) {
	case nil:
		return "nil"
	case int64:
		return ":" + itoa(v)
	case []byte:
		return string(v)
	case string:
		return v
	}
	return "?"
}

// ask sends one command, given as one line, and returns its reply as hear does.
func (c *client) ask(line string) string {
	if err := c.say(line); err != nil {
		return "!" + err.Error()
	}
	return c.hear()
}

// past is a way to Redis around every proxy, safe for all goroutines of a test.
type past struct{ pool *redis.Pool }

func around(t testing.TB, s *testredis.Server) past {
	p := past{&redis.Pool{MaxIdle: 200, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", s.Addr()) }}}
	t.Cleanup(func() { _ = p.pool.Close() })
	return p
}

// ask is client.ask past every proxy.
func (p past) ask(line string) string {
	c := p.pool.Get()
	defer c.Close()
	words := strings.Fields(line)
	reply, err := c.Do(words[0], redis.Args{}.AddFlat(words[1:])...)
	if err != nil {
		return "-" + err.Error()
	}
	return show(reply)
}
