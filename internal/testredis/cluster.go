package testredis

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	clusterSlots = 16384
	// quickly and calmly are what cluster-node-timeout may be. A machine that lets nobody work for so long makes a failover, or ends
	// with the cluster down; FAIL is taken back after twice as long.
	quickly, calmly = 2 * time.Second, 20 * time.Second
	// clusterPatience is how long a cluster may take to come to an agreement.
	clusterPatience = 60 * time.Second
	// failoverPatience is how long Redis tries a failover that was ordered, and a little more.
	failoverPatience = 6 * time.Second
	// look is how often servers are asked whether they have come to what a test waits for. Each look costs every server new
	// connections.
	look = 100 * time.Millisecond
)

// QuickFailover is what StartCluster is told by tests that want a dead master noticed soon. The others have a cluster in which that takes
// long, so that no machine is so slow that it happens to them.
const QuickFailover = "--cluster-node-timeout 2000"

// Cluster is a Redis Cluster of throw-away servers. Methods that return an error may be called from any goroutine.
type Cluster struct {
	t       testing.TB
	tls     bool
	quick   bool      // QuickFailover
	ids     []string  // of Servers, in their order
	Servers []*Server // first those that began as masters, then the replicas
}

// StartCluster starts that many masters, each with so many replicas, with the slots dealt out evenly in the masters'
// order, and returns when all agree that the cluster is ok. args go to each server, as with Start; with
// "--tls-cluster yes" among them each has a port for TLS, too. Server masters+i is a replica of server i%masters.
func StartCluster(t testing.TB, masters, replicasEach int, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t, tls: slices.Contains(args, "--tls-cluster yes"), quick: slices.Contains(args, QuickFailover)}
	given := len(args)
	for range masters * (1 + replicasEach) {
		if c.tls {
			args = append(args[:given:given], fmt.Sprintf("--tls-port %d", FreePort(t)))
		}
		c.Servers = append(c.Servers, newServer(t, append([]string{
			"--cluster-enabled yes",
			fmt.Sprintf("--cluster-node-timeout %d", calmly.Milliseconds()),
			"--cluster-allow-replica-migration no", "--cluster-replica-validity-factor 0",
			"--repl-diskless-sync-delay 0", "--repl-ping-replica-period 1",
		}, args...)))
	}
	startAll(t, c.Servers)
	err := errors.Join(c.Watchful(true), c.form(masters)) // nodes meet sooner, too
	if err := errors.Join(err, c.Watchful(c.quick)); err != nil {
		t.Fatalf("testredis: cluster: %v", err)
	}
	return c
}

// Watchful says whether the servers that run notice soon that one is dead; one that is started again does if StartCluster was told so.
func (c *Cluster) Watchful(soon bool) error {
	timeout := calmly
	if soon {
		timeout = quickly
	}
	for _, s := range c.Servers {
		if s.gone() {
			continue
		}
		if _, err := s.try("CONFIG", "SET", "cluster-node-timeout", timeout.Milliseconds()); err != nil {
			return err
		}
	}
	return nil
}

// form makes a cluster of the servers.
func (c *Cluster) form(masters int) error {
	for i, s := range c.Servers {
		id, err := redis.String(s.try("CLUSTER", "MYID"))
		if err != nil {
			return err
		}
		c.ids = append(c.ids, id)
		if _, err := s.try("CLUSTER", "SET-CONFIG-EPOCH", i+1); err != nil {
			return err
		}
		if i < masters {
			if _, err := s.try("CLUSTER", "ADDSLOTSRANGE", clusterSlots*i/masters, clusterSlots*(i+1)/masters-1); err != nil {
				return err
			}
		}
	}
	if err := c.until(c.meeting()); err != nil {
		return err
	}
	for i, s := range c.Servers[masters:] {
		if _, err := s.try("CLUSTER", "REPLICATE", c.ids[i%masters]); err != nil {
			return err
		}
	}
	return c.WaitOK()
}

// until repeats check until it is content, and gives its last complaint when time is up.
func (c *Cluster) until(check func() error) error {
	for deadline := time.Now().Add(clusterPatience); ; {
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(look):
		case <-c.t.Context().Done():
			return err
		}
	}
}

// meeting introduces the servers to each other, again to those that were too busy to answer within the time-out.
func (c *Cluster) meeting() (met func() error) {
	var asked time.Time
	return func() error {
		err := c.allMet()
		if err == nil || time.Since(asked) < 2*quickly {
			return err
		}
		asked = time.Now()
		for _, s := range c.Servers[1:] {
			bus, err := s.setting("cluster-port")
			if err != nil {
				return err
			}
			if _, err := c.Servers[0].try("CLUSTER", "MEET", "127.0.0.1", s.Port(), bus); err != nil {
				return err
			}
		}
		return err
	}
}

func (c *Cluster) allMet() error {
	for _, s := range c.Servers {
		nodes, err := redis.String(s.try("CLUSTER", "NODES"))
		if err != nil {
			return err
		}
		if n := strings.Count(nodes, "\n"); n != len(c.Servers) || strings.Contains(nodes, "handshake") {
			return fmt.Errorf("port %d knows %d nodes", s.Port(), n)
		}
	}
	return nil
}

// WaitOK waits until all servers that run say the cluster is ok, have links to each other, agree on who has which slots, and replicas are
// connected to their masters.
func (c *Cluster) WaitOK() error { return c.until(c.allOK) }

func (c *Cluster) allOK() error {
	slots := ""
	for _, s := range c.Servers {
		if s.gone() {
			continue
		}
		info, err := redis.String(s.try("CLUSTER", "INFO"))
		if err != nil {
			return err
		}
		if !strings.Contains(info, "cluster_state:ok") {
			return fmt.Errorf("port %d: %s", s.Port(), info)
		}
		role, err := redis.Values(s.try("ROLE"))
		if err != nil {
			return err
		}
		if kind, _ := redis.String(role[0], nil); kind == "slave" {
			if state, _ := redis.String(role[3], nil); state != "connected" {
				return fmt.Errorf("port %d: the replica is %s", s.Port(), state)
			}
		}
		view, err := c.slotView(s)
		if err != nil {
			return err
		}
		if slots == "" {
			slots = view
		}
		if view != slots {
			return fmt.Errorf("port %d sees\n%s\nanother sees\n%s", s.Port(), view, slots)
		}
	}
	return nil
}

// slotView is who has which slots, and who is whose replica, as s sees it.
func (c *Cluster) slotView(s *Server) (string, error) {
	ranges, err := redis.Values(s.try("CLUSTER", "SLOTS"))
	if err != nil {
		return "", err
	}
	var lines []string
	for _, r := range ranges {
		row, _ := redis.Values(r, nil)
		master, _ := redis.Values(row[2], nil)
		lines = append(lines, fmt.Sprintf("%v-%v %v", row[0], row[1], master[1]))
	}
	nodes, err := redis.String(s.try("CLUSTER", "NODES"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(nodes) {
		f := strings.Fields(line)
		if len(f) > 7 && f[7] == "disconnected" && c.runs(f[0]) { // what is published at s would not reach it
			return "", fmt.Errorf("port %d has no link to %s", s.Port(), f[1])
		}
		if len(f) > 3 {
			lines = append(lines, f[0]+" "+strings.TrimPrefix(f[2], "myself,")+" "+f[3])
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}

// runs says whether the node of that id is a server that runs.
func (c *Cluster) runs(id string) bool {
	i := slices.Index(c.ids, id)
	return i >= 0 && !c.Servers[i].gone()
}

// ID is a server's node id.
func (c *Cluster) ID(s *Server) string { return c.ids[slices.Index(c.Servers, s)] }

// Owner is the server that has a slot, as the first server that runs sees it; nil when nobody has it.
func (c *Cluster) Owner(slot int) (*Server, error) {
	for _, s := range c.Servers {
		if s.gone() {
			continue
		}
		ranges, err := redis.Values(s.try("CLUSTER", "SLOTS"))
		if err != nil {
			return nil, err
		}
		for _, r := range ranges {
			row, _ := redis.Values(r, nil)
			from, _ := redis.Int(row[0], nil)
			to, _ := redis.Int(row[1], nil)
			if slot < from || slot > to {
				continue
			}
			master, _ := redis.Values(row[2], nil)
			port, _ := redis.Int(master[1], nil)
			for _, s := range c.Servers {
				if s.Port() == port {
					return s, nil
				}
			}
		}
		return nil, nil
	}
	return nil, errors.New("no server runs")
}

// BeginMove opens a slot for migration from one server to another; keys move with MoveKeys.
func (c *Cluster) BeginMove(slot int, from, to *Server) error {
	if _, err := to.try("CLUSTER", "SETSLOT", slot, "IMPORTING", c.ID(from)); err != nil {
		return err
	}
	_, err := from.try("CLUSTER", "SETSLOT", slot, "MIGRATING", c.ID(to))
	return err
}

// MoveKeys moves at most n keys of an opened slot, and says how many it moved.
func (c *Cluster) MoveKeys(slot int, from, to *Server, n int) (int, error) {
	keys, err := redis.Strings(from.try("CLUSTER", "GETKEYSINSLOT", slot, n))
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	port := to.Port()
	if c.tls { // nodes then speak it among each other
		if port, err = to.setting("tls-port"); err != nil {
			return 0, err
		}
	}
	_, err = from.try("MIGRATE", append([]any{"127.0.0.1", port, "", 0, 10000, "REPLACE", "KEYS"}, anys(keys)...)...)
	return len(keys), err
}

// EndMove gives an opened slot to its new owner.
func (c *Cluster) EndMove(slot int, from, to *Server) error {
	for _, s := range []*Server{to, from} {
		if _, err := s.try("CLUSTER", "SETSLOT", slot, "NODE", c.ID(to)); err != nil {
			return err
		}
	}
	return nil
}

// MoveSlot migrates a slot with its keys, as redis-cli --cluster reshard does.
func (c *Cluster) MoveSlot(slot int, from, to *Server) error {
	if err := c.BeginMove(slot, from, to); err != nil {
		return err
	}
	for {
		n, err := c.MoveKeys(slot, from, to, 20)
		if err != nil {
			return err
		}
		if n == 0 {
			return c.EndMove(slot, from, to)
		}
	}
}

// Failover has a replica take its master's place, both alive, and returns when it is the master.
func (c *Cluster) Failover(replica *Server) error { return c.failOver(replica) }

// Replace is Failover for a master that is dead. The others need not know that it is: FORCE spares the replica its master's word, not their
// votes. So nobody has to be quick to take another for dead.
func (c *Cluster) Replace(replica *Server) error { return c.failOver(replica, "FORCE") }

func (c *Cluster) failOver(replica *Server, how ...any) error {
	var asked time.Time
	again := false
	err := c.until(func() error {
		role, err := redis.Values(replica.try("ROLE"))
		if err != nil {
			return err
		}
		kind, _ := redis.String(role[0], nil)
		if kind == "master" {
			// A replica counts the votes of its last election again when that was less than four node time-outs ago. Its epoch is lower than
			// its former master's then, and that one would take its slots back.
			_, err := replica.try("CLUSTER", "BUMPEPOCH")
			return err
		}
		if time.Since(asked) > failoverPatience { // it may have come to nothing
			if again = !asked.IsZero(); again { // who has voted, or was not elected, waits for a few time-outs
				if err := c.Watchful(true); err != nil {
					return err
				}
			}
			if _, err := replica.try("CLUSTER", append([]any{"FAILOVER"}, how...)...); err != nil {
				return err
			}
			asked = time.Now()
		}
		return fmt.Errorf("port %d is a %s", replica.Port(), kind)
	})
	if again && !c.quick {
		err = errors.Join(err, c.Watchful(false))
	}
	return err
}

// gone says that the server's process has ended.
func (s *Server) gone() bool {
	select {
	case <-s.process().exited:
		return true
	default:
		return false
	}
}

// setting is a number of the server's configuration.
func (s *Server) setting(name string) (int, error) {
	pair, err := redis.Strings(s.try("CONFIG", "GET", name))
	if err != nil || len(pair) != 2 {
		return 0, fmt.Errorf("%s: %v %w", name, pair, err)
	}
	return strconv.Atoi(pair[1])
}

// try is Do for any goroutine.
func (s *Server) try(name string, args ...any) (any, error) {
	c, err := s.connect()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	reply, err := c.Do(name, args...)
	if err != nil {
		return nil, fmt.Errorf("port %d: %s %v: %w", s.Port(), name, args, err)
	}
	return reply, nil
}

func anys(words []string) []any {
	all := make([]any, len(words))
	for i, w := range words {
		all[i] = w
	}
	return all
}
