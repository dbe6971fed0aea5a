package history

import (
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	slots "github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/history"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// What proxies have as their --upstream.
const (
	alone     = ""         // a Redis that forgets what it has when it ends
	kept      = "aof"      // one that does not: appendfsync always
	sentinels = "sentinel" // a master with two replicas, and three Sentinels
	clustered = "cluster"  // three masters with a replica each
)

// upstream is that of a round: redis, group or cluster, the others are nil.
type upstream struct {
	redis   *testredis.Server
	group   *testredis.Group
	cluster *testredis.Cluster
	disk    *testredis.Disk // of redis alone; nil: it has none

	password string // of all servers, and so of the proxies; "": none
}

func startUpstream(t testing.TB, kind string) (u upstream) {
	switch kind {
	case kept:
		args := []string{"--appendonly yes", "--appendfsync always"}
		disk, err := testredis.NewDisk(t, 64<<20)
		if err != nil {
			t.Log("*** A FULL DISK IS NOT TESTED:", err, "***")
		} else {
			u.disk, args = disk, append(args, "--dir "+disk.Dir)
		}
		u.redis = testredis.Start(t, args...)
	case sentinels: // replicas and Sentinels log in by names of their own, so that a master can be cut off from them
		u.password = "p"
		u.group = testredis.StartGroup(t, testredis.GroupOptions{
			Node: []string{"--requirepass p", "--user watching on >p allkeys allchannels +@all", "--user following on >p allkeys allchannels +@all",
				"--masteruser following"},
			Sentinel: []string{"sentinel auth-user " + testredis.MasterName + " watching"},
		})
	case clustered:
		u.cluster = testredis.StartCluster(t, 3, 1)
	default:
		u.redis = testredis.Start(t)
	}
	return u
}

// reach gives a proxy its wires: to the one Redis, to each Sentinel, or to each node of a cluster.
func (u upstream) reach(t testing.TB, p *proxy) (url string, args []string) {
	wires := func(servers []*testredis.Server) string {
		var addrs []string
		for _, s := range servers {
			w := testredis.NewProxy(t, s.Addr())
			p.links, addrs = append(p.links, w), append(addrs, w.Addr())
		}
		return strings.Join(addrs, ",")
	}
	switch {
	case u.group != nil:
		return "redis+sentinel://:" + u.password + "@" + wires(u.group.Sentinels) + "/" + testredis.MasterName, nil
	case u.cluster != nil:
		url = "redis-cluster://" + wires(u.cluster.Servers)
		var ways []string
		for i, s := range u.cluster.Servers {
			ways = append(ways, s.Addr()+"="+p.links[i].Addr())
		}
		return url, []string{"--cluster-address-map", strings.Join(ways, ",")}
	}
	p.wire = testredis.NewProxy(t, u.redis.Addr())
	return "redis://" + p.wire.Addr(), nil
}

// dial connects to a server or a proxy.
func (u upstream) dial(addr string, more ...redis.DialOption) (redis.Conn, error) {
	return redis.Dial("tcp", addr, append(more, redis.DialPassword(u.password))...)
}

// servers are all that may have data.
func (u upstream) servers() []*testredis.Server {
	switch {
	case u.group != nil:
		return u.group.Nodes
	case u.cluster != nil:
		return u.cluster.Servers
	}
	return []*testredis.Server{u.redis}
}

// masters are those that have it. All of them answer.
func (u upstream) masters() (some []*testredis.Server) {
	if u.redis != nil {
		return u.servers()
	}
	for _, s := range u.servers() {
		if s.Leads() {
			some = append(some, s)
		}
	}
	return some
}

// sum asks all masters for a number, and adds up what they say. Those that have not got the key refuse.
func (u upstream) sum(command string, args ...any) (total int64, err error) {
	for _, s := range u.masters() {
		n, failed := u.number(s, command, args...)
		if failed != nil && !strings.HasPrefix(failed.Error(), "MOVED ") {
			err = failed
		}
		total += n
	}
	return total, err
}

func (u upstream) number(s *testredis.Server, command string, args ...any) (int64, error) {
	c, err := u.dial(s.Addr())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	n, err := redis.Int64(c.Do(command, args...))
	if err == redis.ErrNil {
		err = nil
	}
	return n, err
}

// keysOf says which keys a master has.
func keysOf(s *testredis.Server) (func(key string) bool, error) {
	c, err := redis.Dial("tcp", s.Addr()) // a cluster's have no password
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ranges, err := redis.Values(c.Do("CLUSTER", "SLOTS"))
	if err != nil {
		return nil, err
	}
	var its [slots.Slots]bool
	for _, r := range ranges {
		row, _ := redis.Values(r, nil)
		master, _ := redis.Values(row[2], nil)
		if port, _ := redis.Int(master[1], nil); port != s.Port() {
			continue
		}
		from, _ := redis.Int(row[0], nil)
		to, _ := redis.Int(row[1], nil)
		for slot := from; slot <= to; slot++ {
			its[slot] = true
		}
	}
	return func(key string) bool { return its[slots.Slot([]byte(key))] }, nil
}

// mayLack says whether a failover may have undone writes to a counter.
func (r *round) mayLack(counter string, ops []*history.Op) bool {
	key := strings.Trim(strings.TrimPrefix(counter, "n:"), "{}")
	var writes []*history.Op
	for _, o := range ops {
		if len(o.Words) > 1 && o.Words[1] == counter {
			writes = append(writes, o)
		}
	}
	return history.Touched(r.Lapses(key), writes)
}
