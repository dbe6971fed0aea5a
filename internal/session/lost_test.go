package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// lostLink is a proxy whose connections to Redis can be cut, and a client that holds a lock there.
func lostLink(t *testing.T, change func(*ServerOptions)) (p *proxy, link *testredis.Proxy, server *testredis.Server, holder *wire) {
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

// Who hears by a connection that is lost is closed, though it holds a lock: it would miss something and not be told. Its lock runs out, since
// the holder may be at work.
func TestHolderThatHearsIsClosed(t *testing.T) {
	for name, begin := range map[string]func(w *wire){
		"subscribed": func(w *wire) { w.do("SUBSCRIBE", "c") },
		"by pattern": func(w *wire) { w.do("PSUBSCRIBE", "c*") },
		"sharded":    func(w *wire) { w.do("SSUBSCRIBE", "c") },
		"tracks":     func(w *wire) { w.expect("+OK\r\n", "CLIENT", "TRACKING", "ON") },
		"MONITOR":    func(w *wire) { w.expect("+OK\r\n", "MONITOR") },
		"within MULTI": func(w *wire) {
			w.do("HELLO", "3")
			w.do("SUBSCRIBE", "c")
			w.expect("+OK\r\n", "MULTI")
		},
	} {
		p, link, server, holder := lostLink(t, func(o *ServerOptions) { o.Allow = []string{"monitor"} })
		begin(holder)
		link.CutAll()
		got := holder.frame()
		for strings.HasPrefix(got, "+1") && name == "MONITOR" { // what others did before that
			got = holder.frame()
		}
		if got != "<end>" {
			t.Errorf("%s: got %q, want the end", name, got)
		}
		eventually(t, name+": its session ends", func() bool { return p.dedicatedCount() == 0 })
		if n := server.Do(t, "EXISTS", "l"); n != int64(1) {
			t.Errorf("%s: the lock was given back", name)
		}
	}
}

// One that hears no more stays.
func TestHolderThatHeardStays(t *testing.T) {
	p, link, _, holder := lostLink(t, nil)
	holder.do("HELLO", "3")
	holder.do("SUBSCRIBE", "c")
	holder.expect("+OK\r\n", "MULTI")
	holder.expect("+QUEUED\r\n", "UNSUBSCRIBE", "c")
	holder.do("EXEC")
	holder.expect("+OK\r\n", "WATCH", "k")
	link.CutAll()
	p.back()
	unlocked(t, holder)
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
	holder.expect(lostInMulti, "SET", "{l}k", "v")
	holder.expect(abortedByLoss, "EXEC")
	holder.expect(":0\r\n", "EXISTS", "{l}k")
	unlocked(t, holder)

	holder.expect("+OK\r\n", "LOCK", "l", "PX", "600000")
	holder.do("HELLO", "3")
	holder.do("SUBSCRIBE", "c")
	kill("pubsub")
	holder.want("<end>")
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
