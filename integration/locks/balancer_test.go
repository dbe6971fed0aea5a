package locks

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// balancer passes connections on to one address, and closes both sides of one on which no bytes have come for a while, as HAProxy, Envoy
// and nginx do. It counts ticks, so that a machine that stands still makes nothing idle.
type balancer struct {
	to  string
	ln  net.Listener
	cut atomic.Int64 // connections closed because they were idle
	wg  sync.WaitGroup
}

const (
	balancerTick = 50 * time.Millisecond
	idleTicks    = 40 // two seconds
)

func startBalancer(t *testing.T, to string) *balancer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{to: to, ln: ln}
	b.wg.Go(b.accept)
	t.Cleanup(b.wg.Wait)
	t.Cleanup(func() { _ = ln.Close() })
	return b
}

func (b *balancer) addr() string { return b.ln.Addr().String() }

func (b *balancer) accept() {
	for {
		client, err := b.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", b.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		b.wg.Go(func() { b.serve(client, server) })
	}
}

// serve returns when a side has closed its connection, or both were idle.
func (b *balancer) serve(client, server net.Conn) {
	var ticks atomic.Int64
	ended := make(chan struct{}, 2)
	b.wg.Go(func() { pass(client, server, &ticks, ended) })
	b.wg.Go(func() { pass(server, client, &ticks, ended) })
	defer client.Close()
	defer server.Close()
	tick := time.NewTicker(balancerTick)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			if ticks.Add(1) > idleTicks {
				b.cut.Add(1)
				return
			}
		}
	}
}

func pass(from, to net.Conn, ticks *atomic.Int64, ended chan<- struct{}) {
	defer func() { ended <- struct{}{} }()
	for buf := make([]byte, 4096); ; {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		ticks.Store(0)
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// A connection's lock is free at once when a balancer has found its connection idle, and keep-alive packets are no bytes to it. A PING now
// and then, or a lease with RENEW over any connection, keeps a lock.
func TestBalancerCutsIdleConnections(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	b := startBalancer(t, p.Addr())
	rival := harness.Dial(t, p.Addr())

	silent, talks, named := harness.Dial(t, b.addr()), harness.Dial(t, b.addr()), harness.Dial(t, b.addr())
	alive := net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 9}
	if err := silent.C.(*net.TCPConn).SetKeepAliveConfig(alive); err != nil {
		t.Fatal(err)
	}
	harness.Expect(t, silent, "+OK\r\n", "LOCK", "silent")
	harness.Expect(t, talks, "+OK\r\n", "LOCK", "talks")
	harness.Expect(t, named, "+OK\r\n", "LOCK", "named", "OWNER", "me", "EX", "600")
	stop, pings := make(chan struct{}), make(chan int)
	go ping(talks, stop, pings)

	harness.Expect(t, rival, "+OK\r\n", "LOCK", "silent", "BLOCK", "60000")
	if !silent.Closed() {
		t.Error("the connection of the silent holder is open")
	}
	harness.Eventually(t, "that of the named owner is cut, too", func() bool { return b.cut.Load() == 2 })
	harness.Expect(t, rival, "$-1\r\n", "LOCK", "named", "OWNER", "another", "EX", "600")
	harness.Expect(t, harness.Dial(t, b.addr()), ":1\r\n", "RENEW", "named", "OWNER", "me", "EX", "600")
	time.Sleep(idleTicks * balancerTick)
	harness.Expect(t, rival, "$-1\r\n", "LOCK", "talks")
	close(stop)
	for range <-pings {
		if got := talks.Read(); got != "+PONG\r\n" {
			t.Fatalf("PING: %q", got)
		}
	}
	harness.Expect(t, talks, ":1\r\n", "UNLOCK", "talks")
}

// ping sends PING until it is to stop, and tells how often. It waits for no reply, since a proxy may be slow on a busy machine.
func ping(w *harness.Wire, stop <-chan struct{}, pings chan<- int) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			pings <- n
			return
		case <-time.After(2 * balancerTick):
			w.Send("PING")
		}
	}
}

// `lockproxy run` says RENEW every second, so nothing is idle while its command runs. A wait that a balancer ends is begun again.
func TestRunBehindABalancer(t *testing.T) {
	t.Parallel()
	p := harness.StartProxy(t, testredis.Start(t).URL())
	b := startBalancer(t, p.Addr())
	holder := harness.Dial(t, p.Addr())
	harness.Expect(t, holder, "+OK\r\n", "LOCK", "job")
	r := runAt(t, b.addr(), "echo begin; read line; echo end", "--lock", "job")
	r.await("lockproxy run: ")
	harness.Eventually(t, "two waits have been ended", func() bool { return b.cut.Load() >= 2 })
	harness.Expect(t, holder, ":1\r\n", "UNLOCK", "job")
	r.await("begin")
	time.Sleep(2 * idleTicks * balancerTick)
	owner := harness.Dial(t, p.Addr()).Do("LOCKINFO", "job")
	if !strings.Contains(owner, "run/") {
		t.Errorf("after twice the balancer's time the holder is %q", owner)
	}
	if _, err := r.in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	r.await("end")
	if code := r.child.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	harness.Expect(t, holder, "+OK\r\n", "LOCK", "job")
}
