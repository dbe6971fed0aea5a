package session

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	count      = "return redis.call('INCR', KEYS[1])"
	unknownSHA = "ffffffffffffffffffffffffffffffffffffffff"
	noSuch     = "-NOSCRIPT No matching script. Please use EVAL.\r\n"
)

func shaOf(body string) string {
	sum := sha1.Sum([]byte(body))
	return hex.EncodeToString(sum[:])
}

// batchOf writes commands at once and returns their replies.
func (w *wire) batchOf(cmds ...[]string) (replies []string) {
	w.t.Helper()
	var out []byte
	for _, c := range cmds {
		out = resp.AppendCommand(out, c...)
	}
	w.raw(out)
	for range cmds {
		replies = append(replies, w.frame())
	}
	return replies
}

// back waits until Redis serves a user again in both protocols, each of which has a connection: nobody, or one with this name and password.
func (p *proxy) back(login ...string) {
	p.t.Helper()
	eventually(p.t, "Redis is back", func() bool {
		w := dialWire(p.t, p.addr)
		defer w.conn.Close()
		if len(login) > 0 && w.do(append([]string{"AUTH"}, login...)...) != "+OK\r\n" {
			return false
		}
		return w.do("PING") == "+PONG\r\n" && strings.HasPrefix(w.do("HELLO", "3"), "%") && w.do("PING") == "+PONG\r\n"
	})
}

// speaks has a client speak a protocol, whose connection to Redis may have to be made first: a busy machine may need more than the second
// for which it is waited.
func (w *wire) speaks(proto string) {
	w.t.Helper()
	eventually(w.t, "HELLO "+proto+" is answered", func() bool { return !strings.HasPrefix(w.do("HELLO", proto), "-") })
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// What Redis has lost it has lost: the client is told, and what it sent behind runs.
func TestNoScriptIsPassedOn(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*proxy{
		"one Redis": startProxy(t, testredis.Start(t).URL(), nil),
		"a cluster": startProxyOf(t, testredis.StartCluster(t, 2, 0), nil),
	} {
		t.Run(name, func(t *testing.T) {
			w := dialWire(t, p.addr)
			sha := []string{"EVALSHA", shaOf(count), "1", "n"}
			w.expect(noSuch, sha...)
			w.expect(":1\r\n", "EVAL", count, "1", "n")
			same(t, w.batchOf(sha, []string{"SCRIPT", "FLUSH"}, sha, []string{"SET", "n", "10"}, sha, []string{"EVAL", count, "1", "n"}, sha, []string{"GET", "n"}),
				":2\r\n", "+OK\r\n", noSuch, "+OK\r\n", noSuch, ":11\r\n", ":12\r\n", "$2\r\n12\r\n")
			same(t, w.batchOf([]string{"MULTI"}, sha, []string{"EXEC"}), "+OK\r\n", "+QUEUED\r\n", "*1\r\n:13\r\n")
		})
	}
}

// What a client sends behind a script runs behind it, although scripts have a connection beside the commands'.
func TestScriptsKeepTheirPlaceAmongCommands(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*proxy{
		"one Redis": startProxy(t, testredis.Start(t).URL(), nil),
		"a cluster": startProxyOf(t, testredis.StartCluster(t, 2, 0), nil),
	} {
		t.Run(name, func(t *testing.T) {
			w := dialWire(t, p.addr)
			slow := "for i = 1, 100000 do end return redis.call('INCR', KEYS[1])"
			var cmds [][]string
			var want []string
			for i := range 300 { // longer than a run
				n := fmt.Sprint(2*i + 1)
				cmds = append(cmds, []string{"INCR", "n"}, []string{"GET", "n"}, []string{"EVAL", slow, "1", "n"})
				want = append(want, ":"+n+"\r\n", fmt.Sprintf("$%d\r\n%s\r\n", len(n), n), fmt.Sprintf(":%d\r\n", 2*i+2))
			}
			same(t, w.batchOf(cmds...), want...)
		})
	}
}

// Where an error of a script may look like several replies, no client shares a connection for scripts with another: it is given back with
// the reply.
func TestScriptsWhoseErrorsMaySpillShareNothing(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (*proxy, *upstream.Budget){
		"one Redis": func(t *testing.T) (*proxy, *upstream.Budget) { return budgeted(t, testredis.Start(t), 16) },
		"a cluster": func(t *testing.T) (*proxy, *upstream.Budget) {
			b := upstream.NewBudget(64, 16)
			return startProxyOf(t, testredis.StartCluster(t, 1, 0), func(o *ServerOptions) { o.Budget = b }, b), b
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, b := start(t)
			var all []*wire
			for range 20 {
				w := dialWire(t, p.addr)
				w.expect("$-1\r\n", "GET", "n")
				w.expect("*1\r\n:0\r\n", "SCRIPT", "EXISTS", unknownSHA)
				all = append(all, w)
			}
			eventually(t, "it is known that errors have one line", p.srv.up.common.OneLine.Load)
			p.srv.up.common.OneLine.Store(false)
			before, _ := b.Used()
			for i, w := range all {
				w.expect(fmt.Sprintf(":%d\r\n", i+1), "EVAL", count, "1", "n")
				w.expect("*0\r\n", "FUNCTION", "LIST")
			}
			if used, _ := b.Used(); used != before+1 {
				t.Errorf("%d connections, %d before: idle clients keep theirs", used, before)
			}
		})
	}
}

// An error of a script's own making is the client's, whatever it reads.
func TestErrorsThatScriptsMakeUp(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	p := startProxy(t, redis.URL(), nil)
	other := dialWire(t, p.addr)
	other.expect("+OK\r\n", "SET", "k", "v")
	redis.Do(t, "SET", "text", strings.TrimRight(noSuch[1:], "\r\n"))
	bodies := []string{
		"redis.call('INCR', KEYS[1]) return redis.error_reply('MOVED 1 127.0.0.1:1')",
		"redis.call('INCR', KEYS[1]) return redis.error_reply('ASK 1 127.0.0.1:1')",
		"redis.call('INCR', KEYS[1]) return redis.error_reply('NOSCRIPT No matching script. Please use EVAL.')",
		"redis.call('INCR', KEYS[1]) return redis.error_reply(redis.call('GET', 'text'))",
		"redis.call('INCR', KEYS[1]) return redis.error_reply(ARGV[1])",
		"redis.call('INCR', KEYS[1]) return {1, redis.error_reply(ARGV[1])}",
		"redis.call('INCR', KEYS[1]) return '-NOSCRIPT x'",
	}
	for _, proto := range []string{"2", "3"} {
		w, direct := dialWire(t, p.addr), dialWire(t, redis.Addr())
		w.do("HELLO", proto)
		direct.do("HELLO", proto)
		for i, body := range bodies {
			key := fmt.Sprint("n", proto, i)
			w.expect("$40\r\n"+shaOf(body)+"\r\n", "SCRIPT", "LOAD", body)
			call := []string{"EVALSHA", shaOf(body), "1", key, noSuch[1 : len(noSuch)-2]}
			want := direct.do(call...)
			w.expect(want, "EVAL", body, "1", key, noSuch[1:len(noSuch)-2])
			same(t, w.batchOf(call, call, []string{"GET", key}), want, want, "$1\r\n4\r\n")
			w.expect(want, call...)
			w.expect("$1\r\n5\r\n", "GET", key)
			other.expect("$1\r\nv\r\n", "GET", "k")
		}
	}
}
