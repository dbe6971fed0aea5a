package redisson

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	slots "github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

var where = flag.String("where", strings.Join([]string{alone, clustered, sentinels}, ","), "the kinds of upstream to test")

// Where the locks are.
const (
	alone     = "single"
	clustered = "cluster"
	sentinels = "sentinel"
)

// place is where the locks are, for both sides.
type place struct {
	where      string
	servers    []*testredis.Server // all that can have a subscriber
	url        string              // lockproxy's upstream
	mode, addr string              // Redisson's configuration, and the addresses in it
	present    string              // what a lockproxy must seem to be to Redisson in that mode

	cluster *testredis.Cluster // nil but of a cluster
	group   *testredis.Group   // nil but with Sentinels
}

func newPlace(t *testing.T, name string) place {
	t.Helper()
	p := place{where: name, mode: "single", present: "standalone"}
	switch name {
	case clustered:
		p.cluster = testredis.StartCluster(t, 3, 1)
		p.servers, p.mode, p.present = p.cluster.Servers, "cluster", "cluster"
		p.addr = addresses(p.servers[:3])
		p.url = "redis-cluster://" + p.addr
	case sentinels:
		p.group = testredis.StartGroup(t, testredis.GroupOptions{})
		p.servers, p.mode = p.group.Nodes, "sentinel"
		p.addr, p.url = addresses(p.group.Sentinels), p.group.URL()
	case alone:
		p.servers = []*testredis.Server{testredis.Start(t)}
		p.addr, p.url = p.servers[0].Addr(), p.servers[0].URL()
	default:
		t.Fatalf("-where %q is none of %q, %q and %q", name, alone, clustered, sentinels)
	}
	return p
}

func addresses(servers []*testredis.Server) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return strings.Join(all, ",")
}

// server is the one that has a key.
func (p place) server(t testing.TB, key string) *testredis.Server {
	t.Helper()
	var s *testredis.Server
	switch {
	case p.cluster != nil:
		var err error
		s, err = p.cluster.Owner(slots.Slot([]byte(key)))
		must(t, err, "asking for the owner of "+key)
	case p.group != nil:
		s = p.group.Master()
	default:
		s = p.servers[0]
	}
	if s == nil {
		t.Fatalf("nobody has %s", key)
	}
	return s
}

// dial connects to all servers.
func (p place) dial(t testing.TB) (all []redis.Conn) {
	t.Helper()
	for _, s := range p.servers {
		all = append(all, s.Dial(t))
	}
	return all
}

func closeAll(conns []redis.Conn) {
	for _, c := range conns {
		_ = c.Close() // only asked questions
	}
}

// heard says that somebody at one of the servers hears what is published in a channel, in the one way or the other.
func (p place) heard(servers []redis.Conn, channel string) bool {
	counts := []string{"NUMSUB"}
	if p.cluster != nil {
		counts = append(counts, "SHARDNUMSUB")
	}
	for _, c := range servers {
		for _, count := range counts {
			reply, err := redis.Values(c.Do("PUBSUB", count, channel))
			if err == nil && reply[1].(int64) > 0 {
				return true
			}
		}
	}
	return false
}

// moves: the lock's slot moves to another master while one side holds it and the other waits. Whoever waits hears of the
// unlock there.
func moves(t *testing.T, e *env, pair, kind string) {
	holder, waiter := e.first(t, pair), e.secondSide(t, pair)
	l := e.lock(kind)
	from, slot := e.server(t, l.name), slots.Slot([]byte(l.name))
	to := e.cluster.Servers[0]
	if to == from {
		to = e.cluster.Servers[1]
	}
	for range 2 {
		hold(t, holder, l, long)
		got := start(func() error { _, err := waiter.lock(l, long); return err })
		e.queued(t, l, 1)
		must(t, e.cluster.MoveSlot(slot, from, to), "moving the slot")
		must(t, e.cluster.WaitOK(), "after the move")
		time.Sleep(noticed)
		if !got.waiting() {
			t.Fatal("two hold it")
		}
		released := time.Now()
		free(t, holder, l)
		e.woke(t, pair+": "+kind+", its slot moved", got.ok(t, "the waiter").Sub(released))
		free(t, waiter, l)
		from, to = to, from
	}
}

// noticed is by when Redisson, which looks once a second, knows of a move.
const noticed = 3 * time.Second
