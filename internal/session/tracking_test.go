package session

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

const (
	invalidated = "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$1\r\nk\r\n"
	pushed      = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"
	noRedirect  = "-ERR The client ID you want redirect to does not exist\r\n"
)

// invalidations makes w a subscriber of them, and returns its CLIENT ID.
func (p *proxy) invalidations(w *wire) string {
	w.t.Helper()
	w.expect("*3\r\n$9\r\nsubscribe\r\n$20\r\n__redis__:invalidate\r\n:1\r\n", "SUBSCRIBE", "__redis__:invalidate")
	return p.idOf(w)
}

// lineOf is w's line of CLIENT LIST, read by from.
func lineOf(t *testing.T, p *proxy, from, w *wire) string {
	t.Helper()
	for _, line := range strings.Split(from.do("CLIENT", "LIST"), "\n") {
		if strings.Contains(line, " addr="+w.conn.LocalAddr().String()+" ") {
			return line
		}
	}
	return ""
}

func TestTrackingRedirect(t *testing.T) {
	t.Parallel()
	p := startProxy(t, testredis.Start(t).URL(), nil)
	target, other := dialWire(t, p.addr), dialWire(t, p.addr)
	for range 3 { // so that our numbers are not Redis'
		dialWire(t, p.addr).do("PING")
	}
	id := p.invalidations(target)
	for _, proto := range []string{"2", "3"} {
		w := dialWire(t, p.addr)
		w.do("HELLO", proto)
		w.expect(":-1\r\n", "CLIENT", "GETREDIR")
		w.expect("+OK\r\n", "CLIENT", "tracking", "ON", "bcast", "REDIRECT", id, "PREFIX", "redirect", "PREFIX", "k")
		w.expect(":"+id+"\r\n", "CLIENT", "GETREDIR")
		if info := w.do("CLIENT", "TRACKINGINFO"); !strings.Contains(info, "\r\nredirect\r\n:"+id+"\r\n") {
			t.Errorf("TRACKINGINFO: %q", info)
		}
		eventually(t, "CLIENT LIST shows it", func() bool {
			line := lineOf(t, p, other, w)
			return strings.Contains(line, " flags=tB ") && strings.Contains(line, " redir="+id+" ")
		})
		other.expect("+OK\r\n", "SET", "k", "v")
		target.want(invalidated)
		w.expect("+OK\r\n", "CLIENT", "TRACKING", "OFF")
		w.expect(":-1\r\n", "CLIENT", "GETREDIR")
		if line := lineOf(t, p, w, w); !strings.Contains(line, " flags=N ") || !strings.Contains(line, " redir=-1 ") {
			t.Errorf("CLIENT LIST without tracking: %s", line)
		}
		other.expect("+OK\r\n", "SET", "k", "v")
		other.expect(":1\r\n", "PUBLISH", "__redis__:invalidate", "next") // no invalidation came before it
		target.want("*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n$4\r\nnext\r\n")
	}
}

// A RESP3 client need not subscribe: it gets a connection of its own for the invalidations.
func TestTrackingRedirectToIdleClient(t *testing.T) {
	t.Parallel()
	p := startProxy(t, testredis.Start(t).URL(), nil)
	target, w, other := dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr)
	target.do("HELLO", "3")
	target.expect("+OK\r\n", "CLIENT", "SETNAME", "target") // which its connection is given, too
	w.expect("+OK\r\n", "CLIENT", "TRACKING", "ON", "REDIRECT", p.idOf(target))
	w.expect("$-1\r\n", "GET", "k")
	other.expect("+OK\r\n", "SET", "k", "v")
	target.want(pushed)
	if step := p.sessionOf(target).client.Step.Now(); step != 0 {
		t.Errorf("a client that got a connection while it was idle is at step %d: a drain would wait for it", step)
	}
	target.expect("$1\r\nv\r\n", "GET", "k")
	// One that is at work in a lock verb is not to be disturbed.
	other.expect("+OK\r\n", "LOCK", "l")
	target.send("LOCK", "l2")
	target.want("+OK\r\n")
	busy := dialWire(t, p.addr)
	busy.send("LOCK", "l", "BLOCK", "0")
	eventually(t, "it waits", func() bool { return strings.Contains(lineOf(t, p, other, busy), " flags=b ") })
	if got := w.do("CLIENT", "TRACKING", "ON", "REDIRECT", p.idOf(busy)); !strings.HasPrefix(got, "-ERR client "+p.idOf(busy)+" has no connection") {
		t.Errorf("got %q", got)
	}
	other.expect(":1\r\n", "UNLOCK", "l")
	busy.want("+OK\r\n")
	busy.expect("+PONG\r\n", "PING")
}

// A redirection that a transaction asks for is to the same connection when EXEC comes: it is not another client's by then.
func TestTrackingRedirectInTransaction(t *testing.T) {
	t.Parallel()
	p := startProxy(t, testredis.Start(t).URL(), nil)
	for _, proto := range []string{"2", "3"} {
		target, w, third, other := dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr)
		w.do("HELLO", proto)
		target.do("HELLO", "3")
		third.do("HELLO", "3")
		queue := func() {
			w.expect("+OK\r\n", "MULTI")
			w.expect("+QUEUED\r\n", "CLIENT", "TRACKING", "ON", "REDIRECT", p.idOf(target))
			w.expect("+QUEUED\r\n", "GET", "k")
		}
		queue()
		w.expect("+OK\r\n", "DISCARD")
		eventually(t, "no connection is kept for what was discarded", func() bool { return p.dedicatedCount() == 0 })
		queue()
		third.send("BLPOP", "q", "0")
		eventually(t, "it waits", func() bool { return p.sessionOf(third).own.View.Blocked.Load() })
		if got := w.do("EXEC"); !strings.HasPrefix(got, "*2\r\n+OK\r\n") {
			t.Fatalf("EXEC: %q", got)
		}
		other.expect("+OK\r\n", "SET", "k", "v")
		other.expect(":1\r\n", "RPUSH", "q", "x")
		third.want("*2\r\n$1\r\nq\r\n$1\r\nx\r\n")
		target.want(pushed)
		w.expect("+OK\r\n", "CLIENT", "TRACKING", "OFF")
		eventually(t, "no connection is kept without tracking", func() bool { return p.dedicatedCount() == 0 })
	}
}

// What Redis would say of numbers that are none of its clients', it says of those that are none of ours.
func TestTrackingRedirectRefused(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	direct, through := dialWire(t, server.Addr()), dialWire(t, p.addr)
	redisOnly := strings.Trim(direct.do("CLIENT", "ID"), ":\r\n")
	for _, line := range []string{"on redirect 999999", "on redirect 0", "on redirect -1", "on redirect x", "on redirect", "off redirect 999999", "on redirect 999999 nonsense",
		"on redirect 999999 redirect 999998", "on bcast optin redirect 999999", "off", "nonsense redirect 99999", ""} {
		args := append([]string{"CLIENT", "TRACKING"}, strings.Fields(line)...)
		if want, got := direct.do(args...), through.do(args...); want != got {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	through.expect(noRedirect, "CLIENT", "TRACKING", "ON", "REDIRECT", redisOnly)
	eventually(t, "no connection is kept for nothing", func() bool { return p.dedicatedCount() == 0 })
}

// The connection that invalidations go to is never another client's afterwards.
func TestTrackingTargetKeepsItsConnection(t *testing.T) {
	t.Parallel()
	p := startProxy(t, testredis.Start(t).URL(), nil)
	target, w := dialWire(t, p.addr), dialWire(t, p.addr)
	id := p.invalidations(target)
	w.expect("+OK\r\n", "CLIENT", "TRACKING", "ON", "REDIRECT", id)
	target.expect("*3\r\n$11\r\nunsubscribe\r\n$20\r\n__redis__:invalidate\r\n:0\r\n", "UNSUBSCRIBE")
	target.expect("+PONG\r\n", "PING")
	if n := p.dedicatedCount(); n != 2 {
		t.Errorf("%d clients have a connection of their own, want 2", n)
	}
	p.invalidations(target)
	w.expect("$-1\r\n", "GET", "k")
	dialWire(t, p.addr).expect("+OK\r\n", "SET", "k", "v")
	target.want(invalidated)
	target.expect("+RESET\r\n", "RESET")
	eventually(t, "RESET ends it", func() bool { return p.dedicatedCount() == 1 })
	w.expect("$1\r\nv\r\n", "GET", "k")
	w.expect(":"+id+"\r\n", "CLIENT", "GETREDIR") // as Redis: broken, but known
}

// Without tracking, each answer about it is Redis' own, on whatever connection.
func TestTrackingQuestions(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	for _, proto := range []string{"2", "3"} {
		direct, through := dialWire(t, server.Addr()), dialWire(t, p.addr)
		for _, w := range []*wire{direct, through} {
			w.do("HELLO", proto)
		}
		for _, line := range []string{"CLIENT GETREDIR", "CLIENT GETREDIR x", "CLIENT TRACKINGINFO", "CLIENT TRACKINGINFO x", "CLIENT CACHING yes", "CLIENT CACHING", "CLIENT CACHING x",
			"WATCH w", "CLIENT GETREDIR", "CLIENT TRACKINGINFO", "CLIENT CACHING no", "CLIENT NOSUCH", "UNWATCH",
			"MULTI", "CLIENT GETREDIR", "CLIENT TRACKINGINFO", "CLIENT CACHING yes", "CLIENT SETNAME x", "CLIENT GETNAME", "EXEC",
			"CLIENT TRACKING on optin", "CLIENT CACHING yes", "CLIENT TRACKINGINFO", "GET k", "CLIENT CACHING no", "CLIENT GETREDIR", "CLIENT TRACKINGINFO",
			"CLIENT TRACKING on", "CLIENT TRACKING off", "CLIENT TRACKINGINFO"} {
			if want, got := direct.do(strings.Fields(line)...), through.do(strings.Fields(line)...); want != got {
				t.Errorf("RESP%s %s: %q, want %q", proto, line, got, want)
			}
		}
	}
}

// What a client has read while Redis tracked its keys is not told to the next client that turns tracking on.
func TestTrackedKeysAreNotTheNextClients(t *testing.T) {
	t.Parallel()
	server, p := startBoth(t, nil)
	first, next := dialWire(t, p.addr), dialWire(t, p.addr)
	for _, w := range []*wire{first, next} {
		w.do("HELLO", "3")
	}
	first.expect("+OK\r\n", "CLIENT", "TRACKING", "ON")
	first.expect("_\r\n", "GET", "secret")
	first.expect("+OK\r\n", "CLIENT", "TRACKING", "OFF")
	eventually(t, "its connection is no longer its own", func() bool { return p.dedicatedCount() == 0 })
	next.expect("+OK\r\n", "CLIENT", "TRACKING", "ON")
	server.Do(t, "SET", "secret", "x")
	next.expect("_\r\n", "GET", "other") // an invalidation would come before
}
