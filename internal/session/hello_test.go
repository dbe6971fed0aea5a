package session

import (
	"bytes"
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
		hello, asked := resp.AppendCommand(nil, "HELLO", other), new(atomic.Int32)
		link.Filter(func(toServer bool, b []byte) bool {
			if toServer && bytes.Contains(b, hello) && asked.Add(1) == 2 {
				link.Filter(nil)
				link.CutAll()
			}
			return true
		})
		if got := holder.do("HELLO", other); !strings.HasPrefix(got, "-ERR upstream") {
			t.Fatalf("RESP%s, HELLO: %q", proto, got)
		}
		p.back()
		holder.expect(empty, "HGETALL", "none")
	}
}

// A HELLO that is never answered ends, though a message came behind it.
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
	if got, err := holder.tryFrame(time.Minute); err != nil || !strings.HasPrefix(got, "-ERR upstream") {
		t.Fatalf("HELLO: %q, %v", got, err)
	}
}

// A connection for subscriptions that does not answer HELLO does not make it fail: what was subscribed to there is made again, and its
// messages then come as the client asked, whether it holds a lock or not.
func TestHelloWhileASubscriptionIsLost(t *testing.T) {
	t.Parallel()
	for _, locks := range []bool{true, false} {
		t.Run("locks "+strconv.FormatBool(locks), func(t *testing.T) {
			t.Parallel()
			redis := testredis.StartCluster(t, 2, 0)
			p := startProxyOf(t, redis, nil)
			w, pub := dialWire(t, p.addr), dialWire(t, p.addr)
			w.do("HELLO", "3")
			w.do("ECHO", "x") // goes where HELLO is asked
			home, other := redis.Servers[0], redis.Servers[1]
			if strings.Contains(text(other.Do(t, "INFO", "commandstats")), "cmdstat_echo") {
				home, other = other, home
			}
			if locks {
				w.expect("+OK\r\n", "LOCK", keyAt(t, redis, home), "PX", "600000")
			}
			channel := keyAt(t, redis, other)
			w.do("SSUBSCRIBE", channel)
			other.Stop()
			if got := w.do("HELLO", "2"); !strings.HasPrefix(got, "*") {
				t.Fatalf("HELLO: %q", got)
			}
			other.Cont()
			eventually(t, "it hears", func() bool { // Redis may count the connection that was given up, too
				pub.do("SPUBLISH", channel, "hi")
				got, _ := w.tryFrame(100 * time.Millisecond)
				return got == "*3\r\n"+bulk("smessage")+bulk(channel)+bulk("hi")
			})
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

// Keyspace notifications come as the client has asked since, also by connections that are made again.
func TestHelloOfWhoHearsKeyspaceEvents(t *testing.T) {
	t.Parallel()
	redis := testredis.StartCluster(t, 1, 0, "--notify-keyspace-events", "KEA")
	p := startProxyOf(t, redis, nil)
	w, other := dialWire(t, p.addr), dialWire(t, p.addr)
	w.do("HELLO", "3")
	w.expect("+OK\r\n", "LOCK", "l", "PX", "600000")
	w.do("SUBSCRIBE", "__keyspace@0__:k")
	w.do("HELLO", "2")
	redis.Servers[0].Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
	eventually(t, "it hears", func() bool {
		other.expect("+OK\r\n", "SET", "k", "v")
		got, err := w.tryFrame(50e6)
		if err == nil && !strings.HasPrefix(got, "*3\r\n"+bulk("message")) {
			t.Fatalf("got %q", got)
		}
		return err == nil
	})
}

// While a holder's subscriptions are made again its messages come as soon as Redis has one of them, but none in the former protocol comes
// behind the reply to HELLO.
func TestHelloWhileSubscriptionsAreMadeAgain(t *testing.T) {
	t.Parallel()
	p, link, server, holder := lostLink(t, nil)
	holder.do("HELLO", "3")
	holder.do("SUBSCRIBE", "news")
	holder.do("PSUBSCRIBE", "p*")
	link.Filter(func(toServer bool, b []byte) bool { return !toServer || !bytes.Contains(b, []byte("psubscribe")) })
	p.cut(link, holder)
	p.back()
	hears := func(mark string) {
		t.Helper()
		want := mark + "3\r\n" + bulk("message") + bulk("news") + bulk("hi")
		eventually(t, "it hears", func() bool {
			server.Do(t, "PUBLISH", "news", "hi")
			got, err := holder.tryFrame(50e6)
			if err == nil && got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
			return err == nil
		})
	}
	hears(">")
	holder.send("HELLO", "2")
	got := holder.frame()
	for strings.HasPrefix(got, ">") {
		got = holder.frame()
	}
	if !strings.HasPrefix(got, "*14\r\n") {
		t.Fatalf("HELLO: %q", got)
	}
	server.Do(t, "PUBLISH", "news", "hi")
	link.Filter(nil)
	hears("*")
}
