package session

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// pipeline sends lines in one write.
func (w *wire) pipeline(lines ...string) {
	w.t.Helper()
	var all []byte
	for _, line := range lines {
		all = resp.AppendCommand(all, strings.Fields(line)...)
	}
	w.raw(all)
}

// EXEC without MULTI is an error that leaves what is watched watched.
func TestExecWithoutMultiKeepsWatching(t *testing.T) {
	t.Parallel()
	server, p := startBoth(t, nil)
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "WATCH", "k")
	w.expect("-ERR EXEC without MULTI\r\n", "EXEC")
	w.expect("-ERR DISCARD without MULTI\r\n", "DISCARD")
	server.Do(t, "SET", "k", "changed")
	w.expect("+OK\r\n", "MULTI")
	w.expect("*-1\r\n", "EXEC")
}

// A reply may come, and the connection be given back, while the session is about to use it.
func TestDedicatedIsNotGivenBackInUse(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--hz", "500") // it looks that often whose wait is over
	p := startProxy(t, server.URL(), nil)
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			w, mine := dialWire(t, p.addr), fmt.Sprintf("c%d", c)
			for i := range 400 {
				w.send("BLMPOP", "0.001", "1", mine, "LEFT")
				if i%4 == 0 {
					time.Sleep(time.Duration(900+i) * time.Microsecond)
				}
				w.pipeline("WAIT 0 0", "ECHO "+mine, "CLIENT SETNAME "+mine, "ECHO "+mine)
				for _, want := range []string{"*-1\r\n", ":0\r\n", "$2\r\n" + mine + "\r\n", "+OK\r\n", "$2\r\n" + mine + "\r\n"} {
					if got := w.frame(); got != want {
						t.Errorf("got %q, want %q", got, want)
						return
					}
				}
			}
		})
	}
	clients.Wait()
	eventually(t, "all were given back", func() bool { return p.dedicatedCount() == 0 })
}

// What is set within a transaction is not another client's afterwards.
func TestTransactionLeavesNothing(t *testing.T) {
	t.Parallel()
	server, p := startBoth(t, nil)
	w := dialWire(t, p.addr)
	w.do("HELLO", "3")
	w.pipeline("MULTI", "CLIENT TRACKING ON", "CLIENT SETNAME foreign", "CLIENT NO-EVICT ON", "EXEC", "GET k")
	for range 6 {
		w.frame()
	}
	server.Do(t, "SET", "k", "v")
	w.want(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n")
	w.expect("+OK\r\n", "CLIENT", "TRACKING", "OFF")
	eventually(t, "it was given back", func() bool { return p.dedicatedCount() == 0 })
	eventually(t, "nothing is left", func() bool {
		list := string(server.Do(t, "CLIENT", "LIST").([]byte))
		return !strings.Contains(list, "foreign") && !strings.Contains(list, "flags=t") && !strings.Contains(list, "flags=e")
	})
	w.expect("+OK\r\n", "MULTI")
	w.expect("-"+notInMulti+"\r\n", "CLIENT", "KILL", "ID", "1")
	w.expect("-"+notInMulti+"\r\n", "CLIENT", "UNBLOCK", "1")
}

func TestMaxClientsUpstream(t *testing.T) {
	t.Parallel()
	_, p := startBoth(t, nil, "--maxclients", "10")
	w := dialWire(t, p.addr)
	w.expect("+PONG\r\n", "PING")
	var others []*wire
	for i := 0; ; i++ {
		other := dialWire(t, p.addr)
		others = append(others, other)
		other.send("SUBSCRIBE", "c")
		if got := other.frame(); got[0] == '-' {
			if want := "-ERR max number of clients reached\r\n"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			break
		}
		if i > 10 {
			t.Fatal("no limit")
		}
	}
	full := dialWire(t, p.addr)
	var got string
	for range 10 {
		full.pipeline("MULTI", "SET k v", "EXEC")
		full.want("+OK\r\n")
		if got = full.frame(); got != "+QUEUED\r\n" {
			break
		}
		full.want("*1\r\n+OK\r\n") // a connection of the engine has ended since: its place is taken, too
		w.expect(":1\r\n", "DEL", "k")
		full.expect("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "SUBSCRIBE", "c")
		full = dialWire(t, p.addr)
	}
	if want := "-ERR max number of clients reached: the transaction is discarded, EXEC or DISCARD ends it\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	full.want("-EXECABORT Transaction discarded because of: max number of clients reached\r\n")
	w.expect("$-1\r\n", "GET", "k")
	for _, other := range others { // the engine may be waiting for room, too
		other.conn.Close()
	}
	eventually(t, "there is room again", func() bool { return w.do("SUBSCRIBE", "c")[0] == '*' })
}

// Pending replies come before the error that ends the connection.
func TestProtocolErrorComesLast(t *testing.T) {
	t.Parallel()
	_, p := startBoth(t, nil)
	for range 50 {
		w := dialWire(t, p.addr)
		w.raw([]byte("*1\r\n$5\r\nMULTI\r\n*1\r\n$4\r\nPING\r\n*1\r\n:boo\r\n"))
		w.want("+OK\r\n")
		w.want("+QUEUED\r\n")
		if got := w.frame(); !strings.HasPrefix(got, "-ERR Protocol error") {
			t.Fatalf("got %q", got)
		}
	}
}

func TestLeaveEndsTheWaitForALock(t *testing.T) {
	t.Parallel()
	_, p := startBoth(t, nil)
	holder := dialWire(t, p.addr)
	holder.expect("+OK\r\n", "LOCK", "l")
	for leave, answer := range map[string]string{"quit": "+OK\r\n", "RESET": "+RESET\r\n"} {
		for _, apart := range []bool{false, true} {
			w := dialWire(t, p.addr)
			if apart {
				w.send("LOCK", "l", "BLOCK", "0")
				eventually(t, "it waits", func() bool { return p.waits(w) })
				w.send(leave)
			} else {
				w.pipeline("LOCK l BLOCK 0", leave)
			}
			w.want("$-1\r\n")
			w.want(answer)
		}
	}
	for _, apart := range []bool{false, true} { // QUIT is not next
		w := dialWire(t, p.addr)
		if apart {
			w.pipeline("LOCK l BLOCK 0", "PING")
			eventually(t, "it waits", func() bool { return p.waits(w) })
			w.send("QUIT")
			time.Sleep(100 * time.Millisecond) // for the proxy to read it: with less the mistake would be found less often
		} else {
			w.pipeline("LOCK l BLOCK 0", "PING", "QUIT")
			eventually(t, "it waits", func() bool { return p.waits(w) })
		}
		holder.expect(":1\r\n", "UNLOCK", "l")
		w.want("+OK\r\n")
		w.want("+PONG\r\n")
		w.want("+OK\r\n")
		eventually(t, "the lock is free", func() bool { return holder.do("LOCK", "l") == "+OK\r\n" })
	}
}

// waits says whether w waits for a lock.
func (p *proxy) waits(w *wire) bool {
	c := p.findSession(w)
	return c != nil && c.activity.waiting.Load() != nil
}

var anyOf3 = regexp.MustCompile(`(unsubscribe\r\n\$3\r\nok)[123]`)

// Subscriptions of all sizes, twice the same, none, refused, all in one pipeline with ordinary replies behind.
func TestSubscriptionsAreCounted(t *testing.T) {
	t.Parallel()
	server, p := startBoth(t, nil)
	server.Do(t, "ACL", "SETUSER", "few", "on", "nopass", "+@all", "~*", "resetchannels", "&ok*")
	for _, proto := range []string{"2", "3"} {
		direct, w := &wire{t: t}, dialWire(t, p.addr)
		direct.conn = dialWire(t, server.Addr()).conn
		long := strings.Repeat("x", 200)
		many := "SUBSCRIBE"
		for i := range 3000 {
			many += fmt.Sprintf(" ok%d", i)
		}
		lines := []string{
			"HELLO " + proto + " AUTH few any", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "SUBSCRIBE", "SUBSCRIBE oka oka okb", "PING",
			"SUBSCRIBE bad", "SUBSCRIBE okc bad", "PSUBSCRIBE ok" + long, many, "SSUBSCRIBE oks", "UNSUBSCRIBE oka oka nothing", "PING a",
			"SUBSCRIBE ok" + long, "UNSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "PING b", "SUNSUBSCRIBE", "PING", "GET k", "EXEC",
			"MULTI", "SUBSCRIBE okm", "GET k", "EXEC", "UNSUBSCRIBE", "WATCH k", "UNSUBSCRIBE", "GET k", "UNWATCH", "CLIENT GETNAME",
		}
		if proto == "3" {
			lines = append(lines, "MULTI", "SUBSCRIBE ok1 ok2 ok3", "ECHO x", "UNSUBSCRIBE", "ECHO y", "EXEC", "BLPOP q 0.3", "SELECT 1",
				"BLPOP q 0.3", "SELECT 0", "MULTI", "SUBSCRIBE ok1 bad", "PSUBSCRIBE oka", "EXEC", "CLIENT GETNAME", "UNSUBSCRIBE", "PUNSUBSCRIBE")
			lines = append(lines, "SUBSCRIBE oka", "LOCK l", "HELLO 2", "PING", "UNSUBSCRIBE", "UNLOCK l", "PING")
			for i, line := range lines {
				if strings.Contains(line, "LOCK") { // compared with a Redis that has no locks
					lines[i] = "ECHO x"
				}
			}
		}
		var got, want bytes.Buffer
		w.pipeline(lines...)
		direct.pipeline(lines...)
		for _, side := range []*wire{w, direct} {
			to := &got
			if side == direct {
				to = &want
			}
			side.send("QUIT")
			side.frame() // HELLO's answer differs
			for {
				f := side.frame()
				if f == "<end>" {
					break
				}
				if strings.Contains(f, "\r\nserver\r\n") {
					continue
				}
				f = anyOf3.ReplaceAllString(f, "${1}N") // Redis' order is by what a connection had subscribed to before
				to.WriteString(f)
			}
		}
		if got.String() != want.String() {
			g, h := got.String(), want.String()
			i := 0
			for i < min(len(g), len(h)) && g[i] == h[i] {
				i++
			}
			t.Errorf("RESP%s: at %d of %d, %d: got …%.200q, want …%.200q", proto, i, len(g), len(h), g[max(0, i-50):], h[max(0, i-50):])
		}
	}
	eventually(t, "all were given back", func() bool { return p.dedicatedCount() == 0 })
}

// What a transaction would have done to the connection is forgotten when a watched key has changed: Redis runs nothing.
func TestNothingFollowsAnExecThatDidNotRun(t *testing.T) {
	t.Parallel()
	server, p := startBoth(t, nil)
	for _, proto := range []string{"2", "3"} {
		w := dialWire(t, p.addr)
		w.do("HELLO", proto)
		w.expect("+OK\r\n", "WATCH", "k")
		server.Do(t, "SET", "k", "changed")
		w.pipeline("MULTI", "SELECT 1", "SUBSCRIBE a b", "CLIENT SETNAME no")
		w.want("+OK\r\n")
		for range 3 {
			w.want("+QUEUED\r\n")
		}
		w.expect(map[string]string{"2": "*-1\r\n", "3": "_\r\n"}[proto], "EXEC")
		w.expect("+OK\r\n", "SET", "k", "v")
		w.expect("+OK\r\n", "CLIENT", "SETNAME", "yes")
		w.expect("$3\r\nyes\r\n", "CLIENT", "GETNAME")
	}
	eventually(t, "the connections are given back", func() bool { return p.dedicatedCount() == 0 })
}

// What lockproxy answers itself comes behind all of EXEC's reply, also when Redis sends the end of it later, and is for the database that
// was selected there. A Redis that never sends the end is not waited for longer than for any other reply.
func TestNothingOvertakesTheEndOfExec(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	between := testredis.NewProxy(t, server.Addr())
	p := startProxy(t, "redis://"+between.Addr(), func(o *ServerOptions) { o.UpstreamTimeout = stuckFor })
	long := strings.Repeat("x", 200<<10) // its confirmation comes in pieces
	const mute = "-ERR Can't execute 'lock': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context\r\n"
	for proto, c := range map[string]struct{ mark, lock string }{"2": {"*", mute}, "3": {">", "+OK\r\n"}} {
		held := make(chan struct{})
		release := sync.OnceFunc(func() { close(held) })
		defer release()
		between.Filter(func(toServer bool, b []byte) bool {
			if !toServer && b[0] == 'x' {
				<-held
			}
			return true
		})
		confirms := func(channel string, n int) string {
			return fmt.Sprintf("%s3\r\n%s%s:%d\r\n", c.mark, bulk("subscribe"), bulk(channel), n)
		}
		beginsExec := func() *wire {
			w := dialWire(t, p.addr)
			w.do("HELLO", proto)
			w.pipeline("MULTI", "SUBSCRIBE a b "+long, "SELECT 5", "EXEC", "LOCK k")
			for _, frame := range []string{"+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n" + confirms("a", 1) + confirms("b", 2)} {
				w.want(frame)
			}
			return w
		}
		if proto == "3" {
			if got := beginsExec().frame(); got != "<end>" {
				t.Errorf("without the rest of EXEC's reply %q comes", got)
			}
		}
		w := beginsExec()
		release()
		if got := w.frame(); got != confirms(long, 3) {
			t.Fatalf("RESP%s: %.80q comes before the rest of EXEC's reply", proto, got)
		}
		w.want("+OK\r\n")
		w.want(c.lock)
		if proto == "3" {
			w.expect(":1\r\n", "EXISTS", "k")
		}
	}
}
