package session

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// A HELLO to which the client's own connection says nothing changes nothing, whatever was said on another.
func TestHolderLosesHello(t *testing.T) {
	p, link, _, holder := lostLink(t, nil)
	for proto, empty := range map[string]string{"2": "*0\r\n", "3": "%0\r\n"} {
		holder.speaks(proto)
		other := map[string]string{"2": "3", "3": "2"}[proto]
		dialWire(t, p.addr).do("HELLO", other) // there is a shared connection of that protocol
		holder.expect("+OK\r\n", "WATCH", "w")
		// The answer on the client's own connection names the ID of that. HELLO is asked on other connections, too.
		own := fmt.Appendf(nil, "$2\r\nid\r\n:%d\r\n", p.sessionOf(holder).own.View.RedisID.Load())
		cut := make(chan struct{})
		link.Filter(func(toServer bool, b []byte) bool {
			if toServer || !bytes.Contains(b, own) {
				return true
			}
			link.Filter(nil)
			link.CutAll()
			close(cut)
			return false
		})
		if got := holder.do("HELLO", other); !strings.HasPrefix(got, "-ERR upstream") {
			t.Fatalf("RESP%s, HELLO: %q", proto, got)
		}
		<-cut // else back may be answered by a connection that is cut after it
		p.back()
		holder.expect(empty, "HGETALL", "none")
	}
}

// A HELLO that is never answered ends, though a message came behind it: its client is closed, since it would miss messages.
func TestHelloBehindAMessage(t *testing.T) {
	t.Parallel()
	_, link, server, holder := lostLink(t, nil)
	holder.do("HELLO", "3")
	holder.do("SUBSCRIBE", "news")
	hello, asked := resp.AppendCommand(nil, "HELLO", "2"), new(atomic.Int32)
	link.Filter(func(toServer bool, b []byte) bool { return !toServer || !bytes.Contains(b, hello) || asked.Add(1) != 2 })
	holder.send("HELLO", "2")
	eventually(t, "it is asked", func() bool { return asked.Load() == 2 })
	time.Sleep(100 * time.Millisecond) // the message comes later than the question went
	server.Do(t, "PUBLISH", "news", "hi")
	holder.frame()
	holder.want("<end>")
}

// A connection for subscriptions that does not answer HELLO is lost, and its client with it, whether it holds a lock or not.
func TestHelloWhileASubscriptionIsLost(t *testing.T) {
	t.Parallel()
	for _, locks := range []bool{true, false} {
		t.Run("locks "+strconv.FormatBool(locks), func(t *testing.T) {
			t.Parallel()
			redis := testredis.StartCluster(t, 2, 0)
			p := startProxyOf(t, redis, nil)
			// ECHO goes where HELLO is asked, but a node that is slow to answer it has another one asked, too.
			var w *wire
			var home, other *testredis.Server
			for home == nil {
				w = dialWire(t, p.addr)
				for _, server := range redis.Servers {
					server.Do(t, "CONFIG", "RESETSTAT")
				}
				w.do("HELLO", "3")
				w.do("ECHO", "x")
				asked := func(i int) bool {
					return strings.Contains(text(redis.Servers[i].Do(t, "INFO", "commandstats")), "cmdstat_echo")
				}
				if first := asked(0); first != asked(1) {
					home, other = redis.Servers[0], redis.Servers[1]
					if !first {
						home, other = other, home
					}
				}
			}
			if locks {
				w.expect("+OK\r\n", "LOCK", keyAt(t, redis, home), "PX", "600000")
			}
			w.do("SSUBSCRIBE", keyAt(t, redis, other))
			other.Stop()
			defer other.Cont()
			w.send("HELLO", "2")
			w.want("<end>")
		})
	}
}

// keyAt is a key of that server's.
func keyAt(t *testing.T, redis *testredis.Cluster, s *testredis.Server) string {
	t.Helper()
	for i := 0; ; i++ {
		key := "k" + strconv.Itoa(i)
		if owner, err := redis.Owner(cluster.Slot([]byte(key))); err != nil {
			t.Fatal(err)
		} else if owner == s {
			return key
		}
	}
}

// Keyspace notifications come as the client has asked since.
func TestHelloOfWhoHearsKeyspaceEvents(t *testing.T) {
	t.Parallel()
	redis := testredis.StartCluster(t, 1, 0, "--notify-keyspace-events", "KEA")
	p := startProxyOf(t, redis, nil)
	w, other := dialWire(t, p.addr), dialWire(t, p.addr)
	w.do("HELLO", "3")
	w.do("SUBSCRIBE", "__keyspace@0__:k")
	w.do("HELLO", "2")
	other.expect("+OK\r\n", "SET", "k", "v")
	w.want("*3\r\n" + bulk("message") + bulk("__keyspace@0__:k") + bulk("set"))
}
