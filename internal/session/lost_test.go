package session

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const (
	lostInMulti   = "-ERR upstream connection lost: the transaction is discarded, EXEC or DISCARD ends it\r\n"
	abortedByLoss = "-EXECABORT Transaction discarded because of: upstream connection lost\r\n"
)

// lostLink is a proxy whose connections to Redis can be cut, and a client that holds a lock there.
func lostLink(t *testing.T, change func(*Options)) (p *proxy, link *testredis.Proxy, server *testredis.Server, holder *wire) {
	t.Helper()
	server = testredis.Start(t)
	link = testredis.NewProxy(t, server.Addr())
	p = startProxy(t, "redis://"+link.Addr(), change)
	holder = dialWire(t, p.addr)
	holder.expect("+OK\r\n", "LOCK", "l", "PX", "600000")
	return p, link, server, holder
}

// cut cuts all connections to Redis and waits until it is known that the client's own is lost, to Redis as well: what Redis sends to it
// afterwards would reach nobody.
func (p *proxy) cut(link *testredis.Proxy, w *wire) {
	p.t.Helper()
	c := p.sessionOf(w)
	was := c.own.View.RedisID.Load()
	link.CutAll()
	eventually(p.t, "the loss is known", func() bool { return c.own.View.RedisID.Load() != was })
	forgotten(p.t, link, was)
}

// forgotten waits until Redis knows that a connection is lost.
func forgotten(t testing.TB, link *testredis.Proxy, id int64) {
	t.Helper()
	redis := dialWire(t, link.Upstream())
	eventually(t, "the loss is known to Redis", func() bool { return redis.do("CLIENT", "LIST", "ID", fmt.Sprint(id)) == "$0\r\n\r\n" })
}

// unlocked has the lock given back: no earlier command may still take effect.
func unlocked(t *testing.T, holder *wire) {
	t.Helper()
	eventually(t, "unlocked", func() bool { return holder.do("UNLOCK", "l") == ":1\r\n" })
}

// A transaction that is lost does not cost a holder its connection: each command gets an error, and EXEC says EXECABORT.
func TestHolderLosesTransaction(t *testing.T) {
	p, link, _, holder := lostLink(t, nil)
	for _, proto := range []string{"2", "3"} {
		for end, want := range map[string]string{"EXEC": abortedByLoss, "DISCARD": "+OK\r\n"} {
			holder.do("HELLO", proto)
			holder.expect("+OK\r\n", "WATCH", "w")
			holder.expect("+OK\r\n", "MULTI")
			holder.expect("+QUEUED\r\n", "SET", "k", "v")
			p.cut(link, holder)
			holder.expect("-ERR MULTI calls can not be nested\r\n", "MULTI")
			for _, args := range [][]string{{"SET", "k", "v"}, {"UNLOCK", "l"}, {"SUBSCRIBE", "c"}, {"BLPOP", "q", "0"}, {"WATCH", "x"}, {"CLIENT", "ID"}, {"EXEC", "x"}, {"NONSENSE"}} {
				holder.expect(lostInMulti, args...)
			}
			holder.expect(want, end)
			p.back()
			holder.expect("-ERR EXEC without MULTI\r\n", "EXEC")
			holder.expect("+OK\r\n", "MULTI") // the watch has ended, too
			holder.expect("+QUEUED\r\n", "EXISTS", "k")
			holder.expect("*1\r\n:0\r\n", "EXEC")
		}
	}
	unlocked(t, holder)
	holder.expect("+OK\r\n", "LOCK", "l")
	holder.expect("+OK\r\n", "MULTI")
	p.cut(link, holder)
	holder.expect("+RESET\r\n", "RESET")
	p.back()
	holder.expect("$-1\r\n", "GET", "k")
}

// A MULTI that cannot be sent begins a transaction that is discarded: what is pipelined behind it is not run by itself.
func TestHolderBeginsTransactionWithoutRedis(t *testing.T) {
	p, link, _, holder := lostLink(t, nil)
	link.Disable()
	eventually(t, "Redis is away", func() bool { return strings.HasPrefix(holder.do("SET", "k", "v"), "-ERR upstream unavailable") })
	holder.raw([]byte("*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n*1\r\n$4\r\nEXEC\r\n*1\r\n$4\r\nEXEC\r\n"))
	holder.want("+OK\r\n")
	for _, prefix := range []string{"-ERR upstream unavailable", "-EXECABORT Transaction discarded because of: upstream unavailable", "-ERR upstream unavailable"} {
		if got := holder.frame(); !strings.HasPrefix(got, prefix) {
			t.Errorf("got %q, want %s …", got, prefix)
		}
	}
	if got := holder.do("WATCH", "k"); !strings.HasPrefix(got, "-ERR upstream unavailable") {
		t.Errorf("WATCH: %q", got)
	}
	link.Enable()
	p.back()
	holder.expect("+OK\r\n", "MULTI")
	holder.expect("+QUEUED\r\n", "SET", "k", "v")
	holder.expect("*-1\r\n", "EXEC") // the WATCH that was not to be had
	holder.expect("$-1\r\n", "GET", "k")
}

// Wherever a holder's transaction is cut, all of it has run, or nothing, and the client can tell its state by the replies.
func TestHoldersTransactionsAreWhole(t *testing.T) {
	p, link, _, holder := lostLink(t, nil)
	var transaction []byte
	for _, args := range [][]string{{"MULTI"}, {"INCR", "a"}, {"INCR", "b"}, {"EXEC"}} {
		transaction = resp.AppendCommand(transaction, args...)
	}
	done, aborted, unknown := 0, 0, 0
	for round := 0; round < 400 && (round < 60 || aborted == 0 || unknown == 0); round++ {
		p.back()
		at := round % len(transaction)
		var cut sync.WaitGroup
		if round%20 == 19 { // for sure between MULTI and EXEC
			at = len(resp.AppendCommand(nil, "MULTI"))
			holder.raw(transaction[:at])
			eventually(t, "Redis has MULTI", func() bool { return p.dedicatedCount() == 1 })
			p.cut(link, holder)
		} else {
			holder.raw(transaction[:at])
			cut.Go(link.CutAll)
		}
		holder.raw(transaction[at:])
		for i := range 4 {
			got := holder.frame()
			switch {
			case i == 0 && got != "+OK\r\n":
				t.Fatalf("round %d, MULTI: %q", round, got)
			case i < 3:
			case strings.HasPrefix(got, "*2\r\n"):
				done++
			case strings.HasPrefix(got, "-EXECABORT "):
				aborted++
			case got == "-"+backend.LostLine+"\r\n":
				unknown++
			default:
				t.Fatalf("round %d, EXEC: %q", round, got)
			}
		}
		cut.Wait()
	}
	p.back()
	a, b := holder.do("GET", "a"), holder.do("GET", "b")
	if a != b || done > 0 && a == "$-1\r\n" {
		t.Errorf("a %q, b %q", a, b)
	}
	t.Logf("%d done, %d aborted, %d unknown", done, aborted, unknown)
	if done == 0 || aborted == 0 {
		t.Error("the test is void")
	}
}

// A watch that is lost makes the next EXEC fail as if a key had changed, unless it is given up before.
func TestHolderLosesWatch(t *testing.T) {
	p, link, _, holder := lostLink(t, nil)
	for proto, null := range map[string]string{"2": "*-1\r\n", "3": "_\r\n"} {
		holder.do("HELLO", proto)
		lose := func() {
			holder.expect("+OK\r\n", "WATCH", "w")
			p.cut(link, holder)
			p.back()
		}
		run := func(want string, between ...string) {
			t.Helper()
			holder.expect("+OK\r\n", "MULTI")
			if between != nil {
				holder.expect("+QUEUED\r\n", between...)
			}
			holder.expect(want, "EXEC")
		}
		lose()
		holder.expect(":0\r\n", "EXISTS", "k")
		holder.expect("-ERR EXEC without MULTI\r\n", "EXEC")
		run(null, "SET", "k", "v")
		run("*1\r\n:0\r\n", "EXISTS", "k")
		lose()
		holder.expect("+OK\r\n", "UNWATCH")
		run("*1\r\n:0\r\n", "EXISTS", "k")
		lose()
		holder.expect("+OK\r\n", "MULTI")
		holder.expect("+OK\r\n", "DISCARD")
		run("*1\r\n:0\r\n", "EXISTS", "k")
		lose()
		run(null, "UNWATCH")
		lose()
		holder.expect("+OK\r\n", "WATCH", "x")
		holder.send("MULTI") // in one go
		holder.send("SET", "k", "v")
		holder.send("EXEC")
		for _, want := range []string{"+OK\r\n", "+QUEUED\r\n", null} {
			holder.want(want)
		}
		run("*1\r\n:0\r\n", "EXISTS", "k")
	}
	unlocked(t, holder)
}

// Subscriptions that are lost under a holder are made again, all of them and nothing else.
func TestHolderLosesSubscriptions(t *testing.T) {
	p, link, server, holder := lostLink(t, nil)
	pub := dialWire(t, server.Addr())
	long := strings.Repeat("n", 300)
	for _, proto := range []string{"2", "3"} {
		mark := map[string]string{"2": "*", "3": ">"}[proto]
		told := func(verb, name string, n int) string {
			return fmt.Sprintf("%s3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n:%d\r\n", mark, len(verb), verb, len(name), name, n)
		}
		holder.do("HELLO", proto)
		holder.expect("+OK\r\n", "MULTI")
		holder.expect("+QUEUED\r\n", "SUBSCRIBE", long)
		holder.expect("*1\r\n"+told("subscribe", long, 1), "EXEC")
		holder.expect(told("subscribe", "a", 2), "SUBSCRIBE", "a", "b")
		holder.want(told("subscribe", "b", 3))
		holder.expect(told("psubscribe", "p*", 4), "PSUBSCRIBE", "p*")
		holder.expect(told("ssubscribe", "s", 1), "SSUBSCRIBE", "s")
		holder.expect(told("unsubscribe", "b", 3), "UNSUBSCRIBE", "b")
		for range 3 {
			p.cut(link, holder)
			for _, name := range []string{"a", long, "p1"} {
				eventually(t, name+" is heard", func() bool { return pub.do("PUBLISH", name, "hi") == ":1\r\n" })
			}
			eventually(t, "s is heard", func() bool { return pub.do("SPUBLISH", "s", "hi") == ":1\r\n" })
			pub.expect(":0\r\n", "PUBLISH", "b", "hi")
			for _, end := range []string{"$1\r\na\r\n$2\r\nhi\r\n", long + "\r\n$2\r\nhi\r\n", "$2\r\np*\r\n$2\r\np1\r\n$2\r\nhi\r\n", "$1\r\ns\r\n$2\r\nhi\r\n"} {
				if got := holder.frame(); !strings.HasPrefix(got, mark) || !strings.HasSuffix(got, end) {
					t.Fatalf("RESP%s: got %q, want … %q", proto, got, end)
				}
			}
		}
		was := p.sessionOf(holder).own.View.RedisID.Load()
		link.Disable()
		forgotten(t, link, was)
		if proto == "2" { // the rules for subscribers hold on
			if got := holder.do("PING"); !strings.HasPrefix(got, "-ERR upstream ") {
				t.Errorf("PING while Redis is away: %q", got)
			}
		}
		link.Enable()
		pong := map[string]string{"2": "*2\r\n$4\r\npong\r\n$0\r\n\r\n", "3": "+PONG\r\n"}[proto]
		eventually(t, "Redis is back", func() bool { return holder.do("PING") == pong })
		eventually(t, "a is heard", func() bool { return pub.do("PUBLISH", "a", "hi") == ":1\r\n" })
		if got := holder.frame(); !strings.HasSuffix(got, "$1\r\na\r\n$2\r\nhi\r\n") {
			t.Errorf("got %q", got)
		}
		holder.expect(told("punsubscribe", "p*", 2), "PUNSUBSCRIBE")
		holder.expect(told("sunsubscribe", "s", 0), "SUNSUBSCRIBE")
		holder.send("UNSUBSCRIBE", "a", long)
		holder.want(told("unsubscribe", "a", 1))
		holder.want(told("unsubscribe", long, 0))
		eventually(t, "the connection was given back", func() bool { return p.dedicatedCount() == 0 })
	}
}

// While Redis is away a subscriber that holds a lock is patient; one that has none by then is closed.
func TestLostSubscriptionsOfOneWhoUnlocks(t *testing.T) {
	p, link, _, holder := lostLink(t, nil)
	holder.do("HELLO", "3")
	holder.do("SUBSCRIBE", "c")
	p.cut(link, holder)
	unlocked(t, holder)
	eventually(t, "it has its subscription", func() bool { return p.sessionOf(holder).own.View.RedisID.Load() != 0 })
	link.Disable()
	holder.want("<end>")
}

// MONITOR goes on, and what CLIENT TRACKING has had cached is forgotten.
func TestHolderLosesMonitorAndTracking(t *testing.T) {
	p, link, server, holder := lostLink(t, func(o *Options) { o.Allow = []string{"monitor"} })
	other := dialWire(t, server.Addr())
	holder.expect("+OK\r\n", "MONITOR")
	p.cut(link, holder)
	eventually(t, "it is shown what others do", func() bool {
		other.expect("$6\r\nmarker\r\n", "ECHO", "marker")
		got, err := holder.tryFrame(50e6) // what was said before MONITOR goes on is never shown
		return err == nil && strings.Contains(got, `"marker"`)
	})
	w := dialWire(t, p.addr)
	p.back()
	w.do("HELLO", "3")
	w.expect("+OK\r\n", "LOCK", "m")
	w.expect("+OK\r\n", "CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "a")
	w.expect("+OK\r\n", "CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "b")
	p.cut(link, w)
	w.want(forgetAll)
	w.want(forgetAll)
	for _, key := range []string{"a1", "b1"} {
		other.expect("+OK\r\n", "SET", key, "v")
		w.want(">2\r\n$10\r\ninvalidate\r\n*1\r\n$2\r\n" + key + "\r\n")
	}
	w.expect("+OK\r\n", "CLIENT", "TRACKING", "OFF")
}

// On a cluster, too.
func TestHolderLosesItsConnectionToANode(t *testing.T) {
	redis := testredis.StartCluster(t, 3, 0)
	p := startProxyOf(t, redis, nil)
	holder := dialWire(t, p.addr)
	holder.expect("+OK\r\n", "LOCK", "l", "PX", "600000")
	kill := func(kind string) {
		for _, node := range redis.Servers {
			node.Do(t, "CLIENT", "KILL", "TYPE", kind)
		}
	}
	lose := func() {
		was := p.sessionOf(holder).own.View.RedisID.Load()
		kill("normal")
		eventually(t, "the loss is known", func() bool { return p.sessionOf(holder).own.View.RedisID.Load() != was })
		eventually(t, "the cluster is there", func() bool {
			return holder.do("LOCKINFO", "l")[0] != '-' || p.sessionOf(holder).own.View.Multi.Load() > 0
		})
	}
	for end, want := range map[string]string{"EXEC": abortedByLoss, "DISCARD": "+OK\r\n"} {
		holder.expect("+OK\r\n", "WATCH", "{l}w")
		holder.expect("+OK\r\n", "MULTI")
		holder.expect("+QUEUED\r\n", "SET", "{l}k", "v")
		lose()
		holder.expect(lostInMulti, "SET", "elsewhere", "v")
		holder.expect(want, end)
		holder.expect("+OK\r\n", "MULTI")
		holder.expect("+QUEUED\r\n", "EXISTS", "{l}k")
		holder.expect("*1\r\n:0\r\n", "EXEC")
	}
	holder.expect("+OK\r\n", "WATCH", "{l}w")
	lose()
	holder.expect("+OK\r\n", "MULTI")
	holder.expect("+QUEUED\r\n", "SET", "{l}k", "v")
	holder.expect("*-1\r\n", "EXEC")
	holder.expect(":0\r\n", "EXISTS", "{l}k")
	unlocked(t, holder)

	holder.expect("+OK\r\n", "LOCK", "l", "PX", "600000")
	holder.do("HELLO", "3")
	holder.do("SUBSCRIBE", "c")
	pub := dialWire(t, p.addr)
	for range 2 { // Redis closes only this one, as if it was for something the client did
		kill("pubsub")
		eventually(t, "it hears", func() bool {
			pub.do("PUBLISH", "c", "hi")
			got, err := holder.tryFrame(50e6)
			return err == nil && got == ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n"
		})
	}
}

// A client whose invalidations go to another one is closed for a loss, whether it holds a lock or not, and so is that other one: what
// has been cached cannot be taken back.
func TestRedirectionLost(t *testing.T) {
	p, link, server, target := lostLink(t, nil)
	tracker := dialWire(t, p.addr)
	tracker.expect("+OK\r\n", "LOCK", "m")
	target.do("SUBSCRIBE", "__redis__:invalidate")
	tracker.expect("+OK\r\n", "CLIENT", "TRACKING", "ON", "REDIRECT", p.idOf(target))
	server.Do(t, "CLIENT", "KILL", "ID", p.sessionOf(target).own.View.RedisID.Load())
	target.want("<end>")
	link.CutAll()
	tracker.want("<end>")
}

// forgetAll tells a client in RESP3 that nothing it has cached is valid.
const forgetAll = ">2\r\n$10\r\ninvalidate\r\n_\r\n"
