package session

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
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
		holder.speaks(proto)
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

// What this proxy answers itself is not run for a subscriber in RESP2, either, when it comes behind a SUBSCRIBE with which the connection is lost.
func TestHolderLosesSubscribeItself(t *testing.T) {
	p, link, server, holder := lostLink(t, nil)
	holder.do("SUBSCRIBE", "c1")
	for _, words := range [][]string{{"SELECT", "5"}, {"LOCK", "m"}, {"FENCED", "l", "SET", "y", "1"}, {"HELLO", "3"}, {"CLIENT", "SETNAME", "x"}} {
		link.Filter(func(toServer bool, b []byte) bool {
			if toServer && bytes.Contains(b, []byte("c2")) {
				link.Filter(nil)
				link.CutAll()
			}
			return true
		})
		holder.raw(resp.AppendCommand(resp.AppendCommand(nil, "SUBSCRIBE", "c2"), words...))
		for _, of := range []string{"SUBSCRIBE", words[0]} {
			if got := holder.frame(); got[0] != '-' {
				t.Errorf("%s is answered %q", of, got)
			}
		}
		p.back()
	}
	eventually(t, "its subscription is back", func() bool { return holder.do("PING")[0] == '*' })
	holder.do("UNSUBSCRIBE", "c1")
	holder.expect("*0\r\n", "HGETALL", "none")
	holder.expect("$-1\r\n", "CLIENT", "GETNAME")
	holder.expect("$-1\r\n", "GET", "y")
	holder.expect("+OK\r\n", "SET", "x", "1")
	if got := text(server.Do(t, "GET", "x")); got != "1" {
		t.Errorf("in database 0 x is %q", got)
	}
	if n := server.Do(t, "EXISTS", "m"); n != int64(0) {
		t.Error("m is locked")
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
	for range 3 { // the connection is lost, is made again, and is the idle client's
		w.want(forgetAll)
	}
	for _, key := range []string{"a1", "b1"} {
		other.expect("+OK\r\n", "SET", key, "v")
		w.want(">2\r\n$10\r\ninvalidate\r\n*1\r\n$2\r\n" + key + "\r\n")
	}
	w.expect("+OK\r\n", "CLIENT", "TRACKING", "OFF")
}

// In RESP2 there are no pushes, which such a client would take for a reply.
func TestHolderLosesTrackingInRESP2(t *testing.T) {
	p, link, _, holder := lostLink(t, nil)
	holder.expect("+OK\r\n", "CLIENT", "TRACKING", "ON")
	was := p.sessionOf(holder).own.View.RedisID.Load()
	p.cut(link, holder)
	eventually(t, "it is tracked again", func() bool {
		id := p.sessionOf(holder).own.View.RedisID.Load()
		return id != 0 && id != was
	})
	eventually(t, "Redis is back", func() bool {
		holder.raw([]byte("PING\r\nPING\r\n"))
		first, second := holder.frame(), holder.frame()
		if first[0] == '>' || second[0] == '>' {
			t.Fatalf("got %q, %q", first, second)
		}
		return first == "+PONG\r\n" && second == first
	})
	if info := holder.do("CLIENT", "TRACKINGINFO"); !strings.Contains(info, "$5\r\nflags\r\n*1\r\n$2\r\non\r\n") {
		t.Errorf("CLIENT TRACKINGINFO: %q", info)
	}
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
