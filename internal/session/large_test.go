package session

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// TestLongRepliesAreExpected: a reply that was long once comes over a connection of the client's own the next time, whoever asks.
func TestLongRepliesAreExpected(t *testing.T) {
	t.Parallel()
	t.Run("one Redis", func(t *testing.T) {
		t.Parallel()
		p, b := budgeted(t, testredis.Start(t), 4)
		expectsLongReplies(t, p, b, "EVAL 'return redis.call(\"LRANGE\", KEYS[1], 0, -1)' 1 {k}list")
	})
	t.Run("a cluster", func(t *testing.T) {
		t.Parallel()
		b := upstream.NewBudget(64, 16)
		expectsLongReplies(t, startProxyOf(t, testredis.StartCluster(t, 2, 0), func(o *ServerOptions) { o.Budget = b }, b), b)
	})
}

func expectsLongReplies(t *testing.T, p *proxy, b *upstream.Budget, more ...string) {
	setup := dialWire(t, p.addr)
	value := strings.Repeat("v", 32<<10)
	for i := range 40 {
		setup.do("APPEND", "{k}big", value)
		setup.do("RPUSH", "{k}list", value)
		setup.do("HSET", "{k}hash", strings.Repeat("f", i+1), value)
		setup.do("SET", "{k}"+strings.Repeat("n", i+1), value)
		setup.do("GET", strconv.Itoa(i)) // the shared connections to all nodes stay
	}
	for range more {
		setup.expect("$1\r\nv\r\n", "EVAL", "return 'v'", "0") // the connection for scripts stays
	}
	used := func() int { n, _ := b.Used(); return n }
	for _, command := range append(more, "GET {k}big", "LRANGE {k}list 0 -1", "HGETALL {k}hash", "MGET {k}big {k}n {k}nn") {
		lengths := map[int]bool{}
		for i := range 3 {
			w, before := dialWire(t, p.addr), used()
			w.raw([]byte(command + "\r\n"))
			got := w.frame()
			lengths[len(got)] = true
			if own := used() > before; len(got) < 1<<20 || own != (i > 0) {
				t.Errorf("%s, time %d: %d bytes, a connection of its own: %t", command, i, len(got), own)
			}
			w.conn.Close()
			p.srv.up.backend.Renew(func(upstream.Identity) bool { return true }) // ends those that nobody uses
			eventually(t, "its connections are over", func() bool { return used() <= before })
		}
		if len(lengths) > 1 {
			t.Errorf("%s: replies of several lengths: %v", command, lengths)
		}
	}
}

// A long command keeps its order among those that any node can answer: all go to the same node. The slow log tells what clients
// publish; Redis' counts have what the scripts of trial locks publish, too.
func TestLongPublishGoesWhereOthersGo(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := startProxyOf(t, tc, nil)
	published := func() (by []bool) {
		for _, s := range tc.Servers {
			by = append(by, strings.Contains(fmt.Sprintf("%s", s.Do(t, "SLOWLOG", "GET", "-1")), "PUBLISH news"))
		}
		return by
	}
	for _, s := range tc.Servers {
		s.Do(t, "CONFIG", "SET", "slowlog-log-slower-than", 0)
	}
	for range 8 {
		for _, s := range tc.Servers {
			s.Do(t, "SLOWLOG", "RESET")
		}
		w := dialWire(t, p.addr)
		w.expect(":0\r\n", "PUBLISH", "news", "short")
		short := published()
		if !slices.Contains(short, true) {
			t.Fatal("the slow logs have no PUBLISH")
		}
		w.expect(":0\r\n", "PUBLISH", "news", strings.Repeat("x", resp.Long+1))
		if all := published(); !slices.Equal(all, short) {
			t.Errorf("a short message was published at %v, a long one besides at %v", short, all)
		}
	}
}

// A Redis that accepts no further connection answers long commands on the one that all clients share.
func TestLongCommandsOfMoreClientsThanRedisTakes(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	p := startProxy(t, redis.URL(), nil)
	value := strings.Repeat("v", resp.Long+1)
	dialWire(t, p.addr).expect("+OK\r\n", "SET", "long", value)
	redis.Do(t, "CONFIG", "SET", "maxclients", 12)
	for range 20 {
		dialWire(t, p.addr).expect("$"+strconv.Itoa(len(value))+"\r\n"+value+"\r\n", "GET", "long")
	}
}
