package session

import (
	"fmt"
	"strings"
	"testing"

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

// A script without end: others are told that Redis is busy, as by Redis itself, lock verbs included; other scripts wait; and all goes on when
// anybody has killed it.
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
				scripts.expect("$4\r\ndone\r\n", "FCALL", "short", "0")
				long.raw(resp.AppendCommand(resp.AppendCommand(nil, call...), "PING"))
				other.until("-BUSY", "PING")
				scripts.raw(resp.AppendCommand(resp.AppendCommand(nil, "FCALL", "short", "0"), "PING"))
				for _, args := range [][]string{{"LOCK", "other"}, {"UNLOCK", "held"}} {
					if got := holder.do(args...); !strings.HasPrefix(got, "-BUSY") {
						t.Errorf("%q: %q", args, got)
					}
				}
				other.expect("+OK\r\n", kill, "KILL")
				scripts.want("$4\r\ndone\r\n")
				scripts.want("+PONG\r\n")
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

// However many clients there are, their scripts have one connection, and their other commands one.
func TestScriptsHaveOneConnection(t *testing.T) {
	t.Parallel()
	p, b := budgeted(t, testredis.Start(t), 16)
	eventually(t, "it is known that errors have one line", p.srv.up.common.OneLine.Load)
	together := make(chan struct{})
	const clients = 100
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
	if used, _ := b.Used(); used != 2 {
		t.Errorf("%d connections to Redis", used)
	}
}

// do1 runs one command on a connection of its own.
func (p *proxy) do1(t testing.TB, args ...string) string {
	t.Helper()
	w := dialWire(t, p.addr)
	defer w.conn.Close()
	return w.do(args...)
}
