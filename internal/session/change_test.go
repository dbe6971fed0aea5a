package session

import (
	"strings"
	"testing"
	"time"
)

// changed puts other limits in force.
func (p *proxy) changed(l Limits) {
	p.t.Helper()
	if err := p.srv.Change(l, CommandRules{}); err != nil {
		p.t.Fatal(err)
	}
}

// New time-outs hold for clients that are there and send nothing.
func TestChangedTimeOuts(t *testing.T) {
	inBubble(t, func(o *ServerOptions) { o.HandshakeTimeout = 0 }, func(t *testing.T, b *bubble) {
		idle, silent, holder := b.dial(t), b.dial(t), b.dial(t)
		eventually(t, "all are there", func() bool { return b.srv.clients.n.Load() == 3 })
		idle.expect("+PONG\r\n", "PING")
		holder.expect("+OK\r\n", "LOCK", "l")
		// ended waits for the end of a client, for about so long.
		ended := func(who string, w *wire, after time.Duration) {
			t.Helper()
			from := time.Now()
			if got, took := w.frame(), time.Since(from); got != "<end>" || took < after-10*time.Millisecond || took > after+10*time.Millisecond {
				t.Errorf("%s: %q after %v", who, got, took)
			}
		}
		b.changed(Limits{HandshakeTimeout: 5 * time.Second})
		time.Sleep(time.Second)
		ended("who has sent nothing", silent, 4*time.Second)
		idle.expect("+PONG\r\n", "PING")
		b.changed(Limits{IdleTimeout: 2 * time.Second})
		ended("who is idle", idle, 2*time.Second)
		time.Sleep(10 * time.Minute)
		holder.expect(":1\r\n", "UNLOCK", "l")
		ended("who holds nothing any more", holder, 2*time.Second)
	})
}

// New limits of commands hold for the next command of clients that are there, but for those that have yet to authenticate.
func TestChangedLimitsOfCommands(t *testing.T) {
	t.Parallel()
	_, p := startBoth(t, func(o *ServerOptions) { o.MaxBulk = 100 }, "--requirepass", "secret")
	login := func() *wire {
		w := dialWire(t, p.addr)
		w.expect("+OK\r\n", "AUTH", "secret")
		return w
	}
	eventually(t, "it is known that Redis asks for a password", p.srv.asksPassword)
	long, waits, stranger := login(), login(), dialWire(t, p.addr)
	stranger.expect("-NOAUTH Authentication required.\r\n", "GET", "k")
	waits.send("BLPOP", "q", "0")
	eventually(t, "it waits", func() bool { return strings.Contains(long.do("INFO", "clients"), "blocked_clients:1\r\n") })
	p.changed(Limits{MaxBulk: 1 << 20})
	value := strings.Repeat("x", 20_000)
	long.expect("+OK\r\n", "SET", "k", value)
	long.expect(":1\r\n", "RPUSH", "q", "v")
	waits.want("*2\r\n$1\r\nq\r\n$1\r\nv\r\n")
	waits.expect("+OK\r\n", "SET", "k", value)
	stranger.expect("-ERR Protocol error: unauthenticated bulk length\r\n", "GET", value)
	p.changed(Limits{MaxBulk: 10})
	long.expect("+OK\r\n", "SET", "k", "0123456789")
	long.expect("-ERR Protocol error: invalid bulk length\r\n", "SET", "k", "0123456789a")
}
