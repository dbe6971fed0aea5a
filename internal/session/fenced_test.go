package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// fencedClient is a client in that protocol that holds l as itself.
func fencedClient(t *testing.T, p *proxy, proto string) *wire {
	t.Helper()
	w := dialWire(t, p.addr)
	w.do("HELLO", proto)
	w.expect("+OK\r\n", "LOCK", "l", "SELF", "PX", "600000")
	return w
}

func TestFencedRefusals(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(o *ServerOptions) { o.Deny = []string{"keys"} })
	w := dialWire(t, p.addr)
	w.expect("-NOTHELD this owner does not hold 'l'\r\n", "FENCED", "l", "SET", "a", "1")
	w.expect("+OK\r\n", "LOCK", "l")
	for line, why := range map[string]string{
		"blpop a 0": "'BLPOP' cannot be run by FENCED: it may wait", "xread block 0 streams a 0": "'XREAD' cannot be run by FENCED: it may wait",
		"WAIT 1 0":       "'WAIT' cannot be run by FENCED: it may wait",
		"Multi":          "'MULTI' cannot be run by FENCED: it concerns the connection",
		"EXEC":           "'EXEC' cannot be run by FENCED: it concerns the connection",
		"UNWATCH":        "'UNWATCH' cannot be run by FENCED: it concerns the connection",
		"subscribe a":    "'SUBSCRIBE' cannot be run by FENCED: it concerns the connection",
		"client no-such": "'CLIENT' cannot be run by FENCED: it concerns the connection", "client caching yes": "'CLIENT CACHING' cannot be run by FENCED: it concerns the connection",
		"select 1": "'SELECT' cannot be run by FENCED: it is lockproxy that answers it", "hello 3": "'HELLO' cannot be run by FENCED: it is lockproxy that answers it",
		"quit": "'QUIT' cannot be run by FENCED: it is lockproxy that answers it", "reset": "'RESET' cannot be run by FENCED: it is lockproxy that answers it",
		"auth x": "'AUTH' cannot be run by FENCED: it is lockproxy that answers it", "unlock l": "'UNLOCK' cannot be run by FENCED: it is a lock verb",
		"fenced l get a": "'FENCED' cannot be run by FENCED: it is a lock verb",
		"monitor":        "'MONITOR' is off in lockproxy, --allow monitor switches it on", "sync": "'SYNC' is not supported by lockproxy",
		"keys *": "'KEYS' is denied by lockproxy's --deny",
	} {
		w.expect("-ERR "+why+"\r\n", append([]string{"FENCED", "l"}, strings.Fields(line)...)...)
	}
	for line, want := range map[string]string{
		"get": "ERR wrong number of arguments for 'get' command", "nosuch x": "ERR unknown command 'nosuch', with args beginning with: 'x' ",
		"hget l": "ERR wrong number of arguments for 'hget' command", "lpush l 1": "WRONGTYPE Operation against a key holding the wrong kind of value",
		"save": "ERR Command not allowed inside a transaction", "object nope": "ERR unknown subcommand 'nope'. Try OBJECT HELP.",
	} {
		w.expect("-"+want+"\r\n", append([]string{"FENCED", "l"}, strings.Fields(line)...)...)
	}
	w.expect("-NOTHELD this owner does not hold 'l'\r\n", "FENCED", "l", "OWNER", "me", "SET", "a", "1")
	w.expect("+OK\r\n", "SET", "text", "x")
	w.expect("-WRONGTYPE Operation against a key holding the wrong kind of value; FENCED is not for a lock with LIMIT, which several may hold\r\n", "FENCED", "text", "SET", "a", "1")
	w.expect(":0\r\n", "EXISTS", "a")
	w.expect("+OK\r\n", "FENCED", "l", "SET", "a", "1")
	w.expect(":1\r\n", "DEL", "l")
	if got := w.do("FENCED", "l", "SET", "a", "2"); !strings.HasPrefix(got, "-LOCKLOST 'l' was lost ") {
		t.Errorf("%q", got)
	}
	w.expect("$1\r\n1\r\n", "GET", "a")
	eventually(t, "all connections were given back", func() bool { used, _ := p.srv.o.Node.DedicatedCount(); return used == 0 })
}

// Within a transaction FENCED spoils it, between WATCH and MULTI it leaves what is watched, a RESP2 subscriber may not have it.
func TestFencedInOtherStates(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	w := fencedClient(t, p, "2")
	w.expect("+OK\r\n", "MULTI")
	w.expect("-"+notInMulti+"\r\n", "FENCED", "l", "SET", "a", "1")
	w.expect("-EXECABORT Transaction discarded because of previous errors.\r\n", "EXEC")
	w.expect("+OK\r\n", "WATCH", "b")
	w.expect("+OK\r\n", "FENCED", "l", "SET", "a", "1")
	dialWire(t, p.addr).expect("+OK\r\n", "SET", "b", "2")
	w.expect("+OK\r\n", "MULTI")
	w.expect("+QUEUED\r\n", "SET", "a", "1")
	w.expect("*-1\r\n", "EXEC") // the WATCH stood
	w.expect("+OK\r\n", "FENCED", "l", "SET", "a", "3")
	w.expect("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "SUBSCRIBE", "c")
	w.expect("-ERR Can't execute 'fenced': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context\r\n", "FENCED", "l", "GET", "a")

	w = dialWire(t, p.addr)
	w.expect("+OK\r\n", "LOCK", "m")
	w.send("CLIENT", "REPLY", "OFF")
	w.send("FENCED", "m", "SET", "off", "1")
	w.send("FENCED", "m", "GET")
	w.send("FENCED", "none", "GET", "a")
	w.expect("+OK\r\n", "CLIENT", "REPLY", "ON")
	w.send("CLIENT", "REPLY", "SKIP")
	w.send("FENCED", "m", "INCR", "off")
	w.expect("$1\r\n2\r\n", "FENCED", "m", "GET", "off")
}

// Subscribers in RESP3 may; what they are sent meanwhile comes between replies, as it does without FENCED.
func TestFencedWhileSubscribed(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	w := fencedClient(t, p, "3")
	const message = ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n"
	w.expect(">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "SUBSCRIBE", "c")
	for _, publish := range [][]string{{"PUBLISH", "c", "hi"}, {"FENCED", "l", "PUBLISH", "c", "hi"}} {
		w.send(publish...)
		frames := w.frame() + w.frame()
		if frames != message+":1\r\n" && frames != ":1\r\n"+message { // Redis 7.0 sends them in that order, 7.2 in this
			t.Fatalf("%q: %q", publish, frames)
		}
		w.expect("_\r\n", "FENCED", "l", "GET", "nothing")
	}
	w.expect("%0\r\n", "FENCED", "l", "HGETALL", "nothing")
	w.expect(">3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n", "UNSUBSCRIBE", "c")
	eventually(t, "the connection was given back", func() bool { return p.dedicatedCount() == 0 })
}

// Big replies and requests, many in one pipeline, and lock verbs behind them keep their order.
func TestFencedPipeline(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	for _, proto := range []string{"2", "3"} {
		w := fencedClient(t, p, proto)
		big := strings.Repeat("0123456789abcdef", 200_000)
		w.expect("+OK\r\n", "FENCED", "l", "SET", "big", big)
		w.expect("+OK\r\n", "FENCED", "l", "SET", "n", "0")
		var all []byte
		for i := range 300 {
			all = resp.AppendCommand(all, "FENCED", "l", "INCR", "n")
			if i%100 == 50 {
				all = resp.AppendCommand(all, "FENCED", "l", "MGET", "big", "big")
				all = resp.AppendCommand(all, "GET", "n")
			}
		}
		all = resp.AppendCommand(all, "UNLOCK", "l")
		all = resp.AppendCommand(all, "FENCED", "l", "INCR", "n")
		all = resp.AppendCommand(all, "GET", "n")
		w.raw(all)
		value := string(resp.AppendBulkString(nil, big))
		for i := range 300 {
			w.want(fmt.Sprintf(":%d\r\n", i+1))
			if i%100 == 50 {
				if got := w.frame(); got != "*2\r\n"+value+value {
					t.Fatalf("a reply of %d bytes", len(got))
				}
				w.want(string(resp.AppendBulkString(nil, fmt.Sprint(i+1))))
			}
		}
		w.want(":1\r\n")
		w.want("-NOTHELD this owner does not hold 'l'\r\n")
		w.want("$3\r\n300\r\n")
	}
	eventually(t, "all connections were given back", func() bool { used, _ := p.srv.o.Node.DedicatedCount(); return used == 0 })
}

// The command runs as the client's own user, and what FENCED needs of that user is said when it lacks.
func TestFencedAsTheClientsUser(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	w := dialWire(t, p.addr)
	for name, rules := range map[string]string{
		"whole":    "+@all",
		"nowatch":  "+@all -watch",
		"nohmget":  "+@all -hmget",
		"nomulti":  "+@all -multi",
		"noexec":   "+@all -exec",
		"noundo":   "+@all -exec -discard",
		"notothis": "+@all resetkeys ~other",
	} {
		w.do(append([]string{"ACL", "SETUSER", name, "on", "nopass", "~l", "~mine"}, strings.Fields(rules)...)...)
	}
	w.expect("+OK\r\n", "LOCK", "l", "OWNER", "o", "EX", "30")
	const needs = "-NOPERM FENCED runs WATCH and HMGET on the lock, MULTI, EXEC and DISCARD as the client's own user: "
	for user, want := range map[string]string{
		"whole":    "+OK\r\n",
		"nowatch":  needs + "this user has no permissions to run the 'watch' command\r\n",
		"nohmget":  needs + "this user has no permissions to run the 'hmget' command\r\n",
		"nomulti":  needs + "this user has no permissions to run the 'multi' command\r\n",
		"noexec":   needs + "this user has no permissions to run the 'exec' command\r\n",
		"noundo":   needs + "this user has no permissions to run the 'exec' command\r\n",
		"notothis": needs + "this user has no permissions to access one of the keys used as arguments\r\n",
	} {
		c := dialWire(t, p.addr)
		c.expect("+OK\r\n", "AUTH", user, "x")
		for range 3 {
			got := c.do("FENCED", "l", "OWNER", "o", "SET", "mine", user)
			if got != want {
				t.Errorf("%s: %q, want %q", user, got, want)
			}
			if user == "whole" {
				c.expect(c.do("SET", "foreign", "1"), "FENCED", "l", "OWNER", "o", "SET", "foreign", "1")
				c.expect(c.do("EVAL", "return redis.call('GET', KEYS[1])", "1", "foreign"), "FENCED", "l", "OWNER", "o", "EVAL", "return redis.call('GET', KEYS[1])", "1", "foreign")
			}
			c.expect("+PONG\r\n", "PING")
		}
	}
	w.expect("$5\r\nwhole\r\n", "GET", "mine")
	eventually(t, "all connections were given back", func() bool { used, _ := p.srv.o.Node.DedicatedCount(); return used == 0 })
}

// A reader's FENCED runs for as long as its own hold lasts, while others read for longer; so it does on a connection that tracks, and
// for a hold that another proxy gave.
func TestFencedByAReaderWhoseLeaseIsOver(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p, other := startProxy(t, server.URL(), nil), startProxy(t, server.URL(), nil)
	long, short, far, track := dialWire(t, p.addr), dialWire(t, p.addr), dialWire(t, other.addr), dialWire(t, p.addr)
	track.do("HELLO", "3")
	track.expect("+OK\r\n", "CLIENT", "TRACKING", "ON")
	long.expect("+OK\r\n", "RLOCK", "rw", "OWNER", "long", "EX", "30")
	short.expect("+OK\r\n", "RLOCK", "rw", "OWNER", "sh:ort", "PX", "600000")
	short.expect("+OK\r\n", "RLOCK", "rw")
	for out, w := range map[string]*wire{"near": short, "far": far, "track": track} {
		w.expect("+OK\r\n", "FENCED", "rw", "READ", "OWNER", "sh:ort", "SET", out, "1")
		w.expect("+OK\r\n", "FENCED", "rw", "OWNER", "sh:ort", "SET", out, "2")
		w.expect("+OK\r\n", "FENCED", "rw", "OWNER", "long", "SET", out, "3")
	}
	short.expect("+OK\r\n", "FENCED", "rw", "SET", "mine", "1")
	short.expect(":1\r\n", "RENEW", "rw", "PX", "3000", "READ", "OWNER", "sh:ort")
	eventually(t, "the lease is over", func() bool {
		return server.Do(t, "EXISTS", "{rw}:sh%3Aort:rwlock_timeout:1").(int64) == 0
	})
	for out, w := range map[string]*wire{"near": short, "far": far, "track": track} {
		for _, side := range [][]string{nil, {"READ"}} {
			args := append(append([]string{"FENCED", "rw"}, side...), "OWNER", "sh:ort", "SET", out, "4")
			if got := w.do(args...); !strings.HasPrefix(got, "-NOTHELD ") && !strings.HasPrefix(got, "-LOCKLOST ") {
				t.Errorf("%s %v: %q", out, side, got)
			}
		}
		w.expect("+PONG\r\n", "FENCED", "rw", "OWNER", "long", "PING")
		long.expect("$1\r\n3\r\n", "GET", out)
	}
	// A writer that reads, too, is fenced by either.
	w := dialWire(t, p.addr)
	w.expect("+OK\r\n", "WLOCK", "both")
	w.expect("+OK\r\n", "RLOCK", "both", "SELF", "PX", "100")
	time.Sleep(200 * time.Millisecond)
	w.expect("+PONG\r\n", "FENCED", "both", "READ", "PING") // a hold has one lease, that of the longest
	w.expect("+PONG\r\n", "FENCED", "both", "PING")
	// A user who may not look at the key of the hold is told so.
	long.expect("+OK\r\n", "ACL", "SETUSER", "few", "on", "nopass", "~rw", "~few", "+@all")
	few := dialWire(t, p.addr)
	few.expect("+OK\r\n", "AUTH", "few", "x")
	if got := few.do("FENCED", "rw", "OWNER", "long", "SET", "few", "1"); !strings.HasPrefix(got, "-NOPERM FENCED runs ") || !strings.Contains(got, "'{rw}:long:rwlock_timeout:1'") {
		t.Errorf("%q", got)
	}
}
