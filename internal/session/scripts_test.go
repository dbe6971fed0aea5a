package session

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
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

func TestScriptsAreLoadedAgainAfterARestart(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t, "--user u on >p ~* &* +@all -eval -script", "--user none on >p ~* &* +@all -@scripting")
	p := startProxy(t, redis.URL(), nil)
	loader, user, none := dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, p.addr)
	user.expect("+OK\r\n", "AUTH", "u", "p")
	none.expect("+OK\r\n", "AUTH", "none", "p")
	ready := "return {ok = 'ready ' .. #ARGV}"
	loader.expect(":1\r\n", "EVAL", count, "1", "n")
	loader.expect("$40\r\n"+shaOf(ready)+"\r\n", "SCRIPT", "LOAD", ready)
	noPerm := none.do("EVALSHA", shaOf(count), "1", "n")
	restart := func() {
		redis.Kill()
		redis.Restart()
		p.back()
		p.back("u", "p")
		p.back("none", "p")
	}

	restart()
	if got := none.do("EVALSHA", shaOf(count), "1", "n"); got != noPerm || !strings.HasPrefix(got, "-NOPERM") {
		t.Fatalf("a user without the right: %q", got)
	}
	user.expect("-NOSCRIPT No matching script. Please use EVAL.\r\n", "EVALSHA", unknownSHA, "0")
	user.expect(":1\r\n", "EVALSHA", strings.ToUpper(shaOf(count)), "1", "n")
	loader.expect("+ready 2\r\n", "EVALSHA_RO", shaOf(ready), "0", "a", "b")

	restart() // a whole pipeline of them
	var cmds [][]string
	var want []string
	for i := range 300 {
		cmds = append(cmds, []string{"EVALSHA", shaOf(count), "1", "n"}, []string{"EVALSHA", shaOf(ready), "0"})
		want = append(want, fmt.Sprintf(":%d\r\n", i+1), "+ready 0\r\n")
	}
	same(t, user.batchOf(cmds...), want...)

	restart() // what ran behind the first one must not run before it
	sha := []string{"EVALSHA", shaOf(count), "1", "n"}
	gone := []string{"EVALSHA", unknownSHA, "0"}
	same(t, user.batchOf(sha, []string{"SET", "n", "10"}, sha, gone, sha), noSuch, "+OK\r\n", ":11\r\n", noSuch, ":12\r\n")
	same(t, user.batchOf(sha, []string{"SET", "n", "20"}, sha), ":13\r\n", "+OK\r\n", ":21\r\n")
}

// What a user was not let run must not be run for it by its hash.
func TestBodiesOfRefusedScriptsAreNotKept(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t, "--user u on >p ~* &* +@all -eval -script")
	p := startProxy(t, redis.URL(), nil)
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "AUTH", "u", "p")
	for _, args := range [][]string{{"EVAL", count, "1", "n"}, {"SCRIPT", "LOAD", count}} {
		if got := w.do(args...); !strings.HasPrefix(got, "-NOPERM") {
			t.Fatalf("%q: %q", args, got)
		}
	}
	w.expect(noSuch, "EVALSHA", shaOf(count), "1", "n")
}

func TestScriptFlushInATransactionOfAClusterIsKept(t *testing.T) {
	t.Parallel()
	redis := testredis.StartCluster(t, 1, 0)
	w := dialWire(t, startProxyOf(t, redis, nil).addr)
	w.expect(":1\r\n", "EVAL", count, "1", "n")
	same(t, w.batchOf([]string{"MULTI"}, []string{"SCRIPT", "FLUSH"}, []string{"EXEC"}), "+OK\r\n", "+QUEUED\r\n", "*1\r\n+OK\r\n")
	w.expect(noSuch, "EVALSHA", shaOf(count), "1", "n")
}

func TestScriptFlushIsKept(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t, "--user u on >p ~* &* +@all -script")
	p := startProxy(t, redis.URL(), nil)
	w, user := dialWire(t, p.addr), dialWire(t, p.addr)
	user.expect("+OK\r\n", "AUTH", "u", "p")
	evalsha := []string{"EVALSHA", shaOf(count), "1", "n"}
	w.expect(":1\r\n", "EVAL", count, "1", "n")
	redis.Do(t, "SCRIPT", "FLUSH") // past the proxy, as a failover would
	if got := user.do("SCRIPT", "FLUSH"); !strings.HasPrefix(got, "-NOPERM") {
		t.Fatalf("got %q", got)
	}
	w.expect(":2\r\n", evalsha...)
	w.expect("*1\r\n:1\r\n", "SCRIPT", "EXISTS", shaOf(count))
	w.expect("+OK\r\n", "SCRIPT", "FLUSH", "SYNC")
	w.expect(noSuch, evalsha...)
	w.expect("*1\r\n:0\r\n", "SCRIPT", "EXISTS", shaOf(count))
	w.expect(":3\r\n", "EVAL", count, "1", "n")
	same(t, w.batchOf([]string{"MULTI"}, []string{"SCRIPT", "FLUSH"}, []string{"EXEC"}), "+OK\r\n", "+QUEUED\r\n", "*1\r\n+OK\r\n")
	w.expect(noSuch, evalsha...)
	w.expect(":4\r\n", "EVAL", count, "1", "n")
	w.expect("+OK\r\n", "LOCK", "l")
	w.expect("+OK\r\n", "FENCED", "l", "SCRIPT", "FLUSH")
	w.expect(noSuch, evalsha...)
	for range 2 { // the second time it is known to be quick
		w.expect("$40\r\n"+shaOf(count)+"\r\n", "SCRIPT", "LOAD", count)
		same(t, w.batchOf(evalsha, []string{"SCRIPT", "FLUSH"}, evalsha)[1:], "+OK\r\n", noSuch)
		w.expect(noSuch, evalsha...)
		same(t, w.batchOf([]string{"SCRIPT", "FLUSH"}, []string{"EVAL", count, "1", "n"}, evalsha)[:1], "+OK\r\n")
		redis.Do(t, "SCRIPT", "FLUSH")
		if got := w.do(evalsha...); got[0] != ':' {
			t.Fatalf("after a flush it was seen again: %q", got)
		}
	}
}

// Redis loses its scripts, and all clients find out at once: what was answered has run, once, and nothing else has.
func TestScriptsAreLoadedAgainForAll(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	p := startProxy(t, redis.URL(), nil)
	dialWire(t, p.addr).expect(":1\r\n", "EVAL", count, "1", "n")
	const clients, rounds, depth = 20, 30, 3
	pipeline := bytes.Repeat(resp.AppendCommand(nil, "EVALSHA", shaOf(count), "1", "n"), depth)
	var ran, refused atomic.Int64
	call := func(w *wire) {
		if _, err := w.conn.Write(pipeline); err != nil {
			t.Error(err)
			return
		}
		for i := range depth {
			switch frame, err := w.tryFrame(patience); {
			case err != nil:
				t.Error(err)
				return
			case frame[0] == ':':
				ran.Add(1)
			case frame == noSuch && i < depth-1: // another's call has had it loaded before the next of these ran
				refused.Add(1)
			default:
				t.Errorf("reply %d: %q", i, frame)
			}
		}
	}
	var all [clients]*wire
	for i := range all {
		all[i] = dialWire(t, p.addr)
		all[i].do("HELLO", fmt.Sprint(2+i%2))
	}
	for range rounds {
		redis.Do(t, "SCRIPT", "FLUSH")
		var done sync.WaitGroup
		for _, w := range all {
			done.Go(func() { call(w) })
		}
		done.Wait()
	}
	if got := redis.Do(t, "GET", "n"); string(got.([]byte)) != fmt.Sprint(1+ran.Load()) {
		t.Errorf("it ran %s times, and was answered %d times", got, 1+ran.Load())
	}
	t.Logf("%d calls ran, %d were refused", ran.Load(), refused.Load())
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

// A client with big requests or replies has a private connection, on which replies pass as they come.
func TestScriptsAreLoadedAgainForBigCommands(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	p := startProxy(t, redis.URL(), nil)
	w := dialWire(t, p.addr)
	big := strings.Repeat("x", 2*backend.Big)
	echo := "return ARGV[1] -- " + big
	w.expect("$5\r\nsmall\r\n", "EVAL", echo, "0", "small")
	redis.Do(t, "SCRIPT", "FLUSH")
	w.expect("$5\r\nsmall\r\n", "EVALSHA", shaOf(echo), "0", "small")
	redis.Do(t, "SCRIPT", "FLUSH")
	got := w.batchOf([]string{"EVALSHA", shaOf(echo), "0", big}, []string{"EVALSHA", shaOf(echo), "0", "small"}, []string{"PING"})
	same(t, got[1:], "$5\r\nsmall\r\n", "+PONG\r\n")
	if got[0] != fmt.Sprintf("$%d\r\n%s\r\n", len(big), big) {
		t.Errorf("a big call: %.60q", got[0])
	}
}
