package session

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// forged are calls whose errors Redis may write with the line ends that they have in them, so that "+forged" is a reply by itself: those of
// FUNCTION in each version, those of scripts in Redis 8.2.3.
var forged = [][]string{
	{"FUNCTION", "LIST", "a\r\n+forged\r\nb"},
	{"FUNCTION", "LOAD", "#!lua name=forges\nreturn 'x' 'a\\r\\n+forged\\r\\n'"},
	{"EVAL", `if ARGV[1] == "forge" then error({err="ERR a\r\n+forged\r\n"}) end return ARGV[1]`, "0", "forge"},
	{"EVAL", `return redis.call(unpack(ARGV))`, "0", "FUNCTION", "LIST", "a\r\n+forged\r\nb"},
}

// What looks like several replies to one client's command is never the reply to another's, nor does it cost others their connection.
func TestErrorsOfSeveralLines(t *testing.T) {
	t.Parallel()
	t.Run("one Redis", func(t *testing.T) {
		t.Parallel()
		errorsOfSeveralLines(t, startProxy(t, testredis.Start(t).URL(), nil))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		errorsOfSeveralLines(t, startProxyOf(t, testredis.StartCluster(t, 1, 0), nil))
	})
}

// bystander does the same over and over until over is true, and fails the test at any answer but its own.
func (w *wire) bystander(name string, calls [][]string, over *atomic.Bool) {
	for n := 0; !over.Load() && !w.t.Failed(); n++ {
		mine := fmt.Sprint(name, n)
		bulk := string(resp.AppendBulkString(nil, mine))
		wants := map[string]string{"ECHO": bulk, "EVAL": bulk, "WATCH": "+OK\r\n", "UNWATCH": "+OK\r\n", "MULTI": "+OK\r\n", "EXEC": "*1\r\n" + bulk}
		if calls[0][0] == "MULTI" {
			wants["ECHO"] = "+QUEUED\r\n"
		}
		var all []byte
		for _, call := range calls {
			all = resp.AppendCommand(all, append(call[:len(call)-1:len(call)-1], strings.Replace(call[len(call)-1], "?", mine, 1))...)
		}
		w.raw(all)
		for _, call := range calls {
			if got, err := w.tryFrame(patience); got != wants[call[0]] || err != nil {
				w.t.Errorf("%q of %q got %q %v", call, mine, got, err)
				return
			}
		}
	}
}

func errorsOfSeveralLines(t *testing.T, p *proxy) {
	eventually(t, "Redis has been asked", p.srv.facts.learned.Load)
	var bystanders sync.WaitGroup
	var over atomic.Bool
	for i, calls := range [][][]string{
		{{"ECHO", "?"}}, {{"ECHO", "?"}, {"ECHO", "?"}}, {{"EVAL", "return ARGV[1]", "0", "?"}}, {{"EVAL", "return ARGV[1]", "0", "?"}},
		{{"MULTI"}, {"ECHO", "?"}, {"EXEC"}}, {{"WATCH", "w"}, {"ECHO", "?"}, {"UNWATCH"}},
	} {
		w := dialWire(t, p.addr)
		bystanders.Go(func() { w.bystander(fmt.Sprint("of-", i, "-"), calls, &over) })
	}
	for range rounds(100, 20) {
		for _, call := range forged {
			w := dialWire(t, p.addr)
			if call[0] == "EVAL" { // it is known to be quick then
				w.do(append(call[:3:3], "PING")...)
				w.do(append(call[:3:3], "PING")...)
			}
			if got := w.do(call...); !strings.HasPrefix(got, "-") {
				t.Errorf("%q: %q", call, got)
			}
			w.conn.Close()
			w = dialWire(t, p.addr)
			w.send("MULTI")
			w.send(call...)
			w.send("EXEC")
			for range 3 {
				_, _ = w.tryFrame(patience) // it may be closed for it
			}
			w.conn.Close()
		}
	}
	over.Store(true)
	bystanders.Wait()
}
