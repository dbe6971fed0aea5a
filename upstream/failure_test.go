package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// tally is what became of the INCRs of one client on its own key.
type tally struct {
	key                   string
	done, unsent, unknown int
}

// loaded are clients at work.
type loaded struct {
	stop    atomic.Bool
	done    atomic.Int64 // what was answered, of all
	clients sync.WaitGroup
	tallies []tally
}

// load runs clients that INCR their own keys, several at once, until ended.
func load(t *testing.T, p *Pipe) *loaded {
	const clients, depth = 24, 3
	all := &loaded{tallies: make([]tally, clients)}
	for id := range all.tallies {
		all.clients.Go(func() {
			own := &all.tallies[id]
			own.key = fmt.Sprint("counter", id)
			var c client
			for !all.stop.Load() {
				_, err := c.do(p, []string{"INCR", own.key}, []string{"INCR", own.key}, []string{"INCR", own.key})
				var (
					unsent *NotSentError
					lost   *LostError
				)
				ran := strings.Count(string(c.sink.got), ":") // the rest are -LOADING
				own.done += ran
				all.done.Add(int64(ran))
				switch {
				case err == nil:
				case errors.As(err, &unsent):
					own.unsent += depth
					time.Sleep(time.Millisecond)
				case errors.As(err, &lost):
					own.unknown += depth - c.req.Replied
				default:
					t.Errorf("got %v", err)
					return
				}
				if got := strings.Count(string(c.sink.got), "\r\n"); err != nil && got != c.req.Replied {
					t.Errorf("%d replies handed over, Replied is %d", got, c.req.Replied)
				}
			}
		})
	}
	return all
}

// end returns what the clients saw.
func (l *loaded) end() []tally {
	l.stop.Store(true)
	l.clients.Wait()
	return l.tallies
}

// endAfterSome is end as soon as something has got through.
func (l *loaded) endAfterSome(t *testing.T) []tally {
	eventually(t, "something gets through", func() bool { return l.done.Load() > 0 })
	return l.end()
}

// check holds the counters in Redis against what the clients saw: an INCR that
// was answered ran once, one that was not sent never ran.
func check(t *testing.T, s *testredis.Server, tallies []tally) {
	t.Helper()
	conn := s.Dial(t)
	var sum tally
	for _, own := range tallies {
		reply, err := conn.Do("GET", own.key)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := reply.([]byte)
		value, _ := strconv.Atoi(string(text))
		if value < own.done || value > own.done+own.unknown {
			t.Errorf("%s is %d; %d done, %d unknown, %d not sent", own.key, value, own.done, own.unknown, own.unsent)
		}
		sum.done, sum.unsent, sum.unknown = sum.done+own.done, sum.unsent+own.unsent, sum.unknown+own.unknown
	}
	t.Logf("%d done, %d unknown, %d not sent", sum.done, sum.unknown, sum.unsent)
}

func TestCutsUnderLoad(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"shared", "private"} {
		t.Run(kind, func(t *testing.T) {
			s := testredis.Start(t)
			proxy := testredis.NewProxy(t, s.Addr())
			n := newNode(t, Target{Network: "tcp", Addr: proxy.Addr()}, NodeOptions{})
			get := open
			if kind == "private" {
				get = private
			}
			p := get(t, n, Identity{Proto: 2})
			clients := load(t, p)
			for i := range 40 {
				time.Sleep(15 * time.Millisecond)
				switch {
				case i%10 == 9:
					proxy.Disable()
					time.Sleep(20 * time.Millisecond)
					proxy.Enable()
				case i%2 == 0:
					proxy.CutAll()
				default:
					proxy.ResetAll()
				}
			}
			check(t, s, clients.endAfterSome(t))
		})
	}
}

func TestKillUnderLoad(t *testing.T) {
	s := testredis.Start(t, "--appendonly yes", "--appendfsync no") // "everysec" replies before it writes while the disk is slow
	n := newNode(t, targetOf(t, s), NodeOptions{})
	p := open(t, n, Identity{Proto: 3})
	again := telemetry.PipeReconnects.Value()
	clients := load(t, p)
	for range 3 {
		time.Sleep(50 * time.Millisecond)
		s.Restart()
		since := time.Now()
		var c client
		eventually(t, "the pipe works again", func() bool {
			_, err := c.do(p, []string{"PING"})
			return err == nil
		})
		t.Logf("works %v after the restart", time.Since(since))
	}
	check(t, s, clients.endAfterSome(t))
	if telemetry.PipeReconnects.Value() < again+3 {
		t.Error("reconnects were not counted")
	}
}

func TestRequestsMoveToTheNextConnection(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	proxy := testredis.NewProxy(t, s.Addr())
	n := newNode(t, Target{Network: "tcp", Addr: proxy.Addr()}, NodeOptions{})
	eventually(t, "three move", func() bool { return threeMove(t, proxy, n) })
}

// threeMove loses a connection under three requests. false: the next connection was not there within the second for which they wait.
func threeMove(t *testing.T, proxy *testredis.Proxy, n *Node) (moved bool) {
	p := open(t, n, Identity{Proto: 2})
	expect(t, p, "+PONG\r\n", []string{"PING"})
	l := p.link.Load()
	l.mu.Lock()
	l.writing = true // as if a writer stood before its write
	l.mu.Unlock()
	var wg sync.WaitGroup
	var late atomic.Bool
	for range 3 {
		wg.Go(func() {
			var c client
			got, err := c.do(p, []string{"PING"})
			var unsent *NotSentError
			if errors.As(err, &unsent) {
				late.Store(true)
			} else if err != nil || got != "+PONG\r\n" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	eventually(t, "three are queued", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.count == 3
	})
	proxy.CutAll()
	l.fail(errors.New("cut"))
	l.mu.Lock()
	l.leaveWriting()
	wg.Wait()
	return !late.Load()
}

func TestLostUntilRedisIsBack(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := open(t, newNode(t, targetOf(t, s), NodeOptions{}), Identity{Proto: 2})
	s.Stop()
	failed := make(chan error)
	go func() {
		var c client
		_, err := c.do(p, []string{"INCR", "x"})
		failed <- err
	}()
	eventually(t, "the request was written", func() bool {
		l := p.link.Load()
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.handed > 0
	})
	s.Kill()
	var lost *LostError
	if err := <-failed; !errors.As(err, &lost) {
		t.Fatalf("got %v", err)
	}
	var c client
	eventually(t, "requests fail at once", func() bool {
		var unsent *NotSentError
		_, err := c.do(p, []string{"PING"})
		return errors.As(err, &unsent) && strings.Contains(err.Error(), "connection refused")
	})
	s.Restart()
	eventually(t, "requests work", func() bool {
		got, err := c.do(p, []string{"PING"})
		return err == nil && got == "+PONG\r\n"
	})
}

// fakeRedis accepts connections and hands each to talk, with its number.
func fakeRedis(t *testing.T, talk func(i int, c net.Conn)) Target {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				talk(i, c)
			})
		}
	})
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { ln.Close() })
	return Target{Network: "tcp", Addr: ln.Addr().String()}
}

// answer reads one PING a time and answers it until the peer goes away.
func answer(c net.Conn) {
	buf := make([]byte, len("*1\r\n$4\r\nPING\r\n"))
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
		c.Write([]byte("+PONG\r\n"))
	}
}

// admit answers the question that each connection without a password begins with.
func admit(c net.Conn) {
	io.ReadFull(c, make([]byte, len("*1\r\n$4\r\nPING\r\n")))
	c.Write([]byte("+PONG\r\n"))
}

func TestReplyNobodyAskedFor(t *testing.T) {
	t.Parallel()
	for name, junk := range map[string]string{
		"reply":     "+OK\r\n",
		"error":     "-ERR max number of clients reached\r\n",
		"junk":      "HTTP/1.1 400 Bad Request\r\n\r\n",
		"half":      "$100\r\nabc",
		"attribute": "|1\r\n+a\r\n:1\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			closed := make(chan struct{})
			target := fakeRedis(t, func(i int, c net.Conn) {
				if i == 0 {
					c.Write([]byte(junk))
					c.Read(make([]byte, 1)) // until it is closed
					close(closed)
					return
				}
				answer(c)
			})
			n := newNode(t, target, NodeOptions{})
			p, err := n.Open(context.Background(), Identity{Proto: 2})
			if <-closed; err != nil { // it was found out before Open returned
				t.Log(err)
				eventually(t, "the back-off is over", func() bool {
					p, err = n.Open(context.Background(), Identity{Proto: 2})
					return err == nil
				})
			}
			defer p.Release()
			var c client
			eventually(t, "a right reply", func() bool {
				got, err := c.do(p, []string{"PING"})
				if got != "" && got != "+PONG\r\n" {
					t.Fatalf("got %q, %v", got, err)
				}
				return err == nil
			})
		})
	}
}

func TestJunkInsteadOfReplies(t *testing.T) {
	t.Parallel()
	target := fakeRedis(t, func(i int, c net.Conn) {
		admit(c)
		c.Read(make([]byte, 1))
		c.Write([]byte("+PONG\r\n?junk\r\n+PONG\r\n"))
		c.Read(make([]byte, 1<<10))
		c.Read(make([]byte, 1))
	})
	p := open(t, newNode(t, target, NodeOptions{}), Identity{Proto: 2})
	var c client
	got, err := c.do(p, []string{"PING"}, []string{"PING"}, []string{"PING"})
	var lost *LostError
	if !errors.As(err, &lost) || got != "+PONG\r\n" || c.req.Replied != 1 {
		t.Fatalf("got %q, %v, Replied %d", got, err, c.req.Replied)
	}
}

func TestTornReplies(t *testing.T) {
	t.Parallel()
	target := fakeRedis(t, func(i int, c net.Conn) {
		admit(c)
		c.Read(make([]byte, 1<<10))
		c.Write([]byte("+PONG\r\n$10\r\n0123"))
		time.Sleep(10 * time.Millisecond)
	})
	n := newNode(t, target, NodeOptions{})
	for want, p := range map[string]*Pipe{
		"+PONG\r\n":            open(t, n, Identity{Proto: 2}),
		"+PONG\r\n$10\r\n0123": private(t, n, Identity{Proto: 2}),
	} {
		var c client
		got, err := c.do(p, []string{"PING"}, []string{"GET", "x"})
		var lost *LostError
		if !errors.As(err, &lost) || got != want || c.req.Replied != 1 || c.req.Torn != (p.kind == privatePipe) {
			t.Fatalf("got %q, %v, Replied %d, Torn %v", got, err, c.req.Replied, c.req.Torn)
		}
	}
}

// A shared pipe hands long replies over in pieces: what came of one that was lost can be taken back.
func TestTornLongReply(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3*gatheredFrame)
	target := fakeRedis(t, func(i int, c net.Conn) {
		admit(c)
		c.Read(make([]byte, 1<<10))
		fmt.Fprintf(c, "+PONG\r\n$%d\r\n%s\r\n$%d\r\n%s", len(long), long, len(long), long[1:])
		time.Sleep(10 * time.Millisecond)
	})
	p := open(t, newNode(t, target, NodeOptions{}), Identity{Proto: 2})
	var c client
	got, err := c.do(p, []string{"PING"}, []string{"GET", "x"}, []string{"GET", "x"})
	var lost *LostError
	frame := fmt.Sprintf("$%d\r\n%s\r\n", len(long), long)
	if !errors.As(err, &lost) || c.req.Replied != 2 || c.req.Longest < len(long) {
		t.Fatalf("%v, Replied %d, Longest %d", err, c.req.Replied, c.req.Longest)
	}
	if whole := len(got) - c.req.Partial; !c.req.Torn || got[:whole] != "+PONG\r\n"+frame {
		t.Fatalf("%d bytes, %d of them of a part, Torn %v", len(got), c.req.Partial, c.req.Torn)
	}
}

// dialled counts connections that are asked for.
type dialled struct {
	Dialer
	n atomic.Int64
}

func (d *dialled) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d.n.Add(1)
	return d.Dialer.Dial(ctx, network, addr)
}

// A Redis that has gone away is not stormed, however often it is asked for.
func TestNoConnectionStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world.New(1)
		t.Cleanup(w.Close)
		redis := w.NewNode(inMemory)
		dials := &dialled{Dialer: w.Proxy("proxy")}
		p := open(t, newNode(t, Target{Network: "tcp", Addr: redis.Addr(), Dialer: dials}, NodeOptions{}), Identity{Proto: 2})
		expect(t, p, "+PONG\r\n", []string{"PING"})
		redis.Kill()
		dials.n.Store(0)
		const minutes = 5
		for end := time.Now().Add(minutes * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			var c client
			if _, err := c.do(p, []string{"PING"}); err == nil {
				t.Fatal("no error")
			}
		}
		const each = minutes * int64(time.Minute/wantedDelay) // the pause is wantedDelay, give or take a half, while somebody asks
		if n := dials.n.Load(); n < each/2 || n > 2*each {
			t.Errorf("%d connections in %d minutes", n, minutes)
		}
		redis.Start()
		time.Sleep(2 * maxDelay) // the longest pause while nobody asks, give or take a half
		expect(t, p, "+PONG\r\n", []string{"PING"})
	})
}

func TestCloseUnderLoad(t *testing.T) {
	t.Parallel()
	n := newNode(t, targetOf(t, testredis.Start(t)), NodeOptions{})
	p, err := n.Open(context.Background(), Identity{Proto: 2})
	if err != nil {
		t.Fatal(err)
	}
	clients := load(t, p)
	time.Sleep(20 * time.Millisecond)
	n.Close()
	clients.end()
	p.Release()
	var unsent *NotSentError
	if _, err := n.Open(context.Background(), Identity{Proto: 2}); !errors.As(err, &unsent) {
		t.Fatalf("got %v", err)
	}
	if _, err := n.Private(context.Background(), Identity{Proto: 2}); !errors.As(err, &unsent) {
		t.Fatalf("got %v", err)
	}
	if err := n.Authenticate(context.Background(), "", "", "x"); !errors.As(err, &unsent) {
		t.Fatalf("got %v", err)
	}
}
