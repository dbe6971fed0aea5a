package testredis

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// MasterName is what the Sentinels of a Group call their master.
const MasterName = "main"

// Group is one master, its replicas, and the Sentinels that watch them.
type Group struct {
	Nodes     []*Server // the first began as the master
	Sentinels []*Server
	t         testing.TB
}

// GroupOptions are what tests want to be different.
type GroupOptions struct {
	Replicas  int           // 2 unless given
	DownAfter time.Duration // how long a master must be silent: for longer than a machine stalls, unless given
	Node      []string      // further configuration of each node, as in Start; a "--requirepass" is also its masterauth
	Sentinel  []string      // lines of each Sentinel's configuration file
	Password  string        // of the Sentinels
}

// StartGroup starts a group of three Sentinels and returns when all replicas are in step and all Sentinels know each other.
func StartGroup(t testing.TB, o GroupOptions) *Group {
	t.Helper()
	if o.Replicas == 0 {
		o.Replicas = 2
	}
	if o.DownAfter == 0 {
		o.DownAfter = calmly
	}
	node := append([]string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}, o.Node...)
	if p := passwordIn(o.Node); p != "" {
		node = append(node, "--masterauth", p)
	}
	first := newServer(t, nil)
	first.password = passwordIn(node)
	lines := strings.Split(" "+strings.Join(node, " "), " --")[1:]
	first.writesTo("redis.conf", append(lines, `save ""`, "appendonly no")...) // else it restarts as a master when it has become a replica
	startAll(t, []*Server{first})
	g := &Group{t: t, Nodes: []*Server{first}}
	g.Nodes = append(g.Nodes, StartSet(t, o.Replicas, append(node, "--replicaof", "127.0.0.1", strconv.Itoa(g.Nodes[0].Port()))...)...)
	g.until("the replicas are in step", func() bool {
		info, err := redis.String(g.Nodes[0].Do(t, "INFO", "replication"), nil)
		return err == nil && strings.Count(info, "state=online") == o.Replicas
	})
	for range 3 {
		g.Sentinels = append(g.Sentinels, newSentinel(t, o.Password, sentinelLines(g.Nodes[0], o)))
	}
	startAll(t, g.Sentinels)
	g.hurry()
	g.until("the Sentinels know each other and the replicas", func() bool {
		for _, s := range g.Sentinels {
			state, err := redis.StringMap(s.Do(t, "SENTINEL", "MASTER", MasterName), nil)
			if err != nil || state["num-other-sentinels"] != "2" || state["num-slaves"] != strconv.Itoa(o.Replicas) {
				return false
			}
		}
		return true
	})
	g.tune("publish-period", 1000)
	return g
}

// hurry has the Sentinels look more often than every 10 s, rest for less than 30 s when the machine has kept them from looking, and find each
// other soon.
func (g *Group) hurry() { g.tune("info-period", 500, "tilt-period", 1000, "publish-period", 200) }

// tune sets times of the Sentinels in ms. Those before Redis 7 cannot be told. A Sentinel makes a replica again of a node that has been a master
// for four times the publish-period without the Sentinel having heard of a failover, so this has to be longer than a machine stalls.
func (g *Group) tune(times ...any) {
	for _, s := range g.Sentinels {
		_, _ = s.try("SENTINEL", append([]any{"DEBUG"}, times...)...)
	}
}

// sentinelLines configure a Sentinel of a group.
func sentinelLines(master *Server, o GroupOptions) []string {
	lines := []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", MasterName, master.Port()),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", MasterName, o.DownAfter.Milliseconds()),
		fmt.Sprintf("sentinel failover-timeout %s 3000", MasterName),
		fmt.Sprintf("sentinel parallel-syncs %s 2", MasterName),
	}
	if master.password != "" {
		lines = append(lines, fmt.Sprintf("sentinel auth-pass %s %s", MasterName, master.password))
	}
	if o.Password != "" {
		lines = append(lines, "requirepass "+o.Password, "sentinel sentinel-pass "+o.Password)
	}
	return append(lines, o.Sentinel...)
}

// StartSentinel runs redis-server as a Sentinel with these lines of configuration, in a file because it writes to it. The
// password, if any, is the one that they set.
func StartSentinel(t testing.TB, password string, lines ...string) *Server {
	t.Helper()
	s := newSentinel(t, password, lines)
	startAll(t, []*Server{s})
	return s
}

func newSentinel(t testing.TB, password string, lines []string) *Server {
	t.Helper()
	s := newServer(t, []string{"--sentinel"})
	s.password = password
	s.writesTo("sentinel.conf", lines...)
	return s
}

// writesTo gives the server a configuration file, of these lines at first, that it writes to.
func (s *Server) writesTo(name string, lines ...string) {
	s.t.Helper()
	s.file = filepath.Join(s.dir, name)
	if err := os.WriteFile(s.file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// URL is the group's address for the proxy, with the credentials of both kinds.
func (g *Group) URL() string {
	var hosts []string
	for _, s := range g.Sentinels {
		hosts = append(hosts, s.Addr())
	}
	auth, query := "", ""
	if p := g.Nodes[0].password; p != "" {
		auth = ":" + p + "@"
	}
	if p := g.Sentinels[0].password; p != "" {
		query = "?sentinel-password=" + p
	}
	return "redis+sentinel://" + auth + strings.Join(hosts, ",") + "/" + MasterName + query
}

// Hasten has the Sentinels take the master for dead once it has been silent for a second.
func (g *Group) Hasten() { g.downAfter(time.Second) }

// Calm ends what Hasten began, so that a machine that stalls does not take away the new master, too.
func (g *Group) Calm() { g.downAfter(calmly) }

func (g *Group) downAfter(d time.Duration) {
	g.t.Helper()
	for _, s := range g.Sentinels {
		if !s.gone() {
			s.Do(g.t, "SENTINEL", "SET", MasterName, "down-after-milliseconds", d.Milliseconds())
		}
	}
}

// Master is the node that most of the Sentinels call the master. It waits until so many of them answer, which a busy machine may delay.
func (g *Group) Master() (master *Server) {
	g.t.Helper()
	g.until("most of the Sentinels name the same master", func() bool {
		master = g.seen()
		return master != nil
	})
	return master
}

// seen is Master without waiting: nil when most of the Sentinels do not name one.
func (g *Group) seen() *Server {
	votes := map[string]int{}
	for _, s := range g.Sentinels {
		addr, err := s.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName)
		if parts, err := redis.Strings(addr, err); err == nil && len(parts) == 2 {
			votes[net.JoinHostPort(parts[0], parts[1])]++
		}
	}
	for _, n := range g.Nodes {
		if votes[n.Addr()] > len(g.Sentinels)/2 {
			return n
		}
	}
	return nil
}

// AwaitSwitch waits until the master is another one than former.
func (g *Group) AwaitSwitch(former *Server) (master *Server) {
	g.t.Helper()
	g.until("another master", func() bool {
		master = g.seen()
		return master != nil && master != former && master.Leads()
	})
	return master
}

// Leads says whether the server takes itself for a master. The one that the Sentinels name may have been made a replica again by one of them.
func (s *Server) Leads() bool {
	role, err := redis.Values(s.ask("ROLE"))
	if err != nil || len(role) == 0 {
		return false
	}
	name, err := redis.String(role[0], nil)
	return err == nil && name == "master"
}

// Failover has a Sentinel change the master while it lives, and waits for that. A failover that comes to nothing on a busy machine is ordered
// again.
func (g *Group) Failover() (master *Server) {
	g.t.Helper()
	former := g.Master()
	var asked time.Time
	g.until("another master", func() bool {
		if master = g.seen(); master != nil && master != former && master.Leads() {
			return true
		}
		if time.Since(asked) > failoverPatience {
			if _, err := g.Sentinels[0].ask("SENTINEL", "FAILOVER", MasterName); err == nil {
				asked = time.Now()
			}
		}
		return false
	})
	return master
}

// AwaitWhole waits until the master has all replicas again, and every Sentinel knows it.
func (g *Group) AwaitWhole() {
	g.t.Helper()
	g.until("all replicas are in step", func() bool {
		m := g.seen()
		if m == nil {
			return false
		}
		info, err := redis.String(m.ask("INFO", "replication"))
		if err != nil || strings.Count(info, "state=online") != len(g.Nodes)-1 {
			return false
		}
		for _, s := range g.Sentinels {
			state, err := redis.StringMap(s.ask("SENTINEL", "MASTER", MasterName))
			if err != nil || state["flags"] != "master" || net.JoinHostPort(state["ip"], state["port"]) != m.Addr() {
				return false
			}
		}
		return true
	})
}

// groupPatience is long: a failed election is repeated after twice the failover-timeout.
const groupPatience = 60 * time.Second

func (g *Group) until(what string, ok func() bool) {
	g.t.Helper()
	over := time.After(groupPatience)
	for !ok() {
		select {
		case <-time.After(look):
		case <-over:
			g.t.Fatalf("testredis: never: %s", what)
		}
	}
}
