package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/scriptcache"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// until asks until the reply begins with want, and returns it.
func (w *wire) until(want string, args ...string) (got string) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%q answers %s", args, want), func() bool {
		got = w.do(args...)
		return strings.HasPrefix(got, want)
	})
	return got
}

const library = "#!lua name=long\nredis.register_function('endless', function() while true do end end)\n" +
	"redis.register_function('short', function() return 'done' end)"

// A script without end: others are told that Redis is busy, as by Redis itself, other scripts and lock verbs included,
// and all goes on when anybody has killed it.
func TestLongScript(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t, "--busy-reply-threshold 20")
	p := startProxy(t, redis.URL(), nil)
	endless := "while true do end"
	p.do1(t, "FUNCTION", "LOAD", library)
	p.do1(t, "SCRIPT", "LOAD", endless)
	for _, proto := range []string{"2", "3"} {
		for _, call := range [][]string{
			{"EVAL", endless, "0"}, {"EVALSHA", shaOf(endless), "0"}, {"EVAL_RO", endless, "0"}, {"FCALL", "endless", "0"},
		} {
			t.Run(call[0]+proto, func(t *testing.T) {
				kill := "SCRIPT"
				if call[0] == "FCALL" {
					kill = "FUNCTION"
				}
				holder, other, scripts, long := dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr)
				for _, w := range []*wire{holder, other, scripts, long} {
					w.do("HELLO", proto)
				}
				holder.expect("+OK\r\n", "LOCK", "held", "PX", "600000") // no renewal gets through
				for range 2 {                                            // then it is known to be quick
					scripts.expect("$4\r\ndone\r\n", "FCALL", "short", "0")
				}
				long.raw(resp.AppendCommand(resp.AppendCommand(nil, call...), "PING"))
				other.until("-BUSY", "PING")
				if got := scripts.do("FCALL", "short", "0"); !strings.HasPrefix(got, "-BUSY") {
					t.Errorf("another script: %q", got)
				}
				for _, args := range [][]string{{"LOCK", "other"}, {"UNLOCK", "held"}} {
					if got := holder.do(args...); !strings.HasPrefix(got, "-BUSY") {
						t.Errorf("%q: %q", args, got)
					}
				}
				scripts.expect("+OK\r\n", kill, "KILL")
				if got := long.frame(); !strings.Contains(got, "killed by user") {
					t.Errorf("the script: %q", got)
				}
				if got := long.frame(); got != "+PONG\r\n" {
					t.Errorf("behind the script: %q", got)
				}
				for _, w := range []*wire{other, scripts, long} {
					w.expect("+PONG\r\n", "PING")
					w.expect("$4\r\ndone\r\n", "FCALL", "short", "0")
				}
				holder.until(":1\r\n", "UNLOCK", "held")
			})
		}
	}
}

// A script that was quick and now has no end holds up whoever came before that was seen, and nobody else.
func TestQuickScriptThatGetsLong(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t, "--busy-reply-threshold 20")
	p := startProxy(t, redis.URL(), nil)
	mayLast := "while redis.call('GET', KEYS[1]) do end return 'done'"
	long, other := dialWire(t, p.addr), dialWire(t, p.addr)
	for range 3 {
		long.expect("$4\r\ndone\r\n", "EVAL", mayLast, "1", "go-on")
		other.expect("$4\r\ndone\r\n", "EVAL", mayLast, "1", "go-on")
	}
	long.expect("+OK\r\n", "SET", "go-on", "1")
	long.send("EVAL", mayLast, "1", "go-on")
	dialWire(t, p.addr).until("-BUSY", "PING")
	time.Sleep(2 * scriptcache.QuickTime)
	if got := other.do("EVAL", mayLast, "1", "go-on"); !strings.HasPrefix(got, "-BUSY") {
		t.Errorf("another script: %q", got)
	}
	other.expect("+OK\r\n", "SCRIPT", "KILL")
	if got := long.frame(); !strings.Contains(got, "killed by user") {
		t.Errorf("the script: %q", got)
	}
	long.expect(":1\r\n", "DEL", "go-on")
	for range 3 {
		long.expect("$4\r\ndone\r\n", "EVAL", mayLast, "1", "go-on")
		other.expect("$4\r\ndone\r\n", "EVAL", mayLast, "1", "go-on")
	}
}

// runNewScripts runs 20 scripts that nobody has run before, once together is closed.
func runNewScripts(w *wire, first int, together <-chan struct{}, ends chan<- *wire) {
	<-together
	for n := first; n < first+20; n++ {
		if _, err := w.conn.Write(resp.AppendCommand(nil, "EVAL", fmt.Sprint("return ", n), "0")); err != nil {
			w.t.Error(err)
		}
		if frame, err := w.tryFrame(patience); err != nil || frame != fmt.Sprintf(":%d\r\n", n) {
			w.t.Errorf("%q %v", frame, err)
		}
	}
	ends <- w
}

// Connections for scripts are few however many clients there are, and they go with their users.
func TestScriptConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	p := startProxy(t, redis.URL(), nil)
	together := make(chan struct{})
	const clients = 2 * scriptcache.MaxAlone
	ends := make(chan *wire, clients)
	for i := range clients {
		w := dialWire(t, p.addr)
		w.expect("+PONG\r\n", "PING")
		go runNewScripts(w, 100+i*20, together, ends)
	}
	close(together)
	for range clients {
		(<-ends).conn.Close()
	}
	eventually(t, "no lane is in use", func() bool { return p.srv.up.common.Lanes.InUse() == 0 })
	if got := p.do1(t, "INFO", "clients"); !strings.Contains(got, "connected_clients:") {
		t.Fatal(got)
	} else {
		var n int
		fmt.Sscanf(got[strings.Index(got, "connected_clients:"):], "connected_clients:%d", &n)
		if n > scriptcache.MaxAlone+10 {
			t.Errorf("%d connections to Redis", n)
		}
	}
}

// do1 runs one command on a connection of its own.
func (p *proxy) do1(t testing.TB, args ...string) string {
	t.Helper()
	w := dialWire(t, p.addr)
	defer w.conn.Close()
	return w.do(args...)
}
