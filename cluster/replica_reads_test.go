package cluster

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

var calls = regexp.MustCompile(`cmdstat_get:calls=(\d+)`)

// gets is how many GETs a server has run.
func gets(t testing.TB, s *testredis.Server) int {
	t.Helper()
	info, err := redis.String(s.Do(t, "INFO", "commandstats"), nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if m := calls.FindStringSubmatch(info); m != nil {
		n, _ = strconv.Atoi(m[1])
	}
	return n
}

// serving waits until so many replicas are read from.
func serving(t testing.TB, c *Cluster, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " replicas serve"), func() bool {
		serve := 0
		for _, copies := range c.Snapshot().copies {
			for _, r := range copies {
				if r.serves.Load() {
					serve++
				}
			}
		}
		return serve == n
	})
}

var (
	masterOffset  = regexp.MustCompile(`master_repl_offset:(\d+)`)
	replicaOffset = regexp.MustCompile(`,offset=(\d+),lag`)
)

// replicated waits until what masters have written is at their replicas.
func replicated(t testing.TB, tc *testredis.Cluster) {
	t.Helper()
	for _, s := range tc.Servers[:3] {
		written := -1 // until now: a ping each second adds to it
		eventually(t, "replicated", func() bool {
			info, _ := redis.String(s.Do(t, "INFO", "replication"), nil)
			number := func(r *regexp.Regexp) int {
				n := -1
				if m := r.FindStringSubmatch(info); m != nil {
					n, _ = strconv.Atoi(m[1])
				}
				return n
			}
			if written < 0 {
				written = number(masterOffset)
			}
			return written >= 0 && number(replicaOffset) >= written
		})
	}
}

// reader is a client that reads from replicas, of three masters with a replica each, and some keys that all are there.
func reader(t *testing.T, o Options) (*testredis.Cluster, *Cluster, *client) {
	t.Helper()
	tc := testredis.StartCluster(t, 3, 1)
	o.Replicas = true
	c := openCluster(t, tc, o)
	cl := newClient(t, c, learn(t, c), 3)
	for i := range 90 {
		cl.expect(fmt.Sprintf("SET k%d %d", i, i), "+OK\r\n")
	}
	replicated(t, tc)
	serving(t, c, 3)
	cl.e.Replicas(true)
	return tc, c, cl
}

// readAll reads all keys, one by one, and checks them.
func readAll(t *testing.T, cl *client, when string) {
	t.Helper()
	for i := range 90 {
		if got := cl.do(fmt.Sprint("GET k", i))[0]; got != bulk(fmt.Sprint(i)) {
			t.Fatalf("%s: k%d is %q", when, i, got)
		}
	}
}

func TestReadsLandOnReplicas(t *testing.T) {
	t.Parallel()
	tc, c, cl := reader(t, Options{})
	var ran [6]int
	atReplicas(t, c, 90, func() {
		for i, s := range tc.Servers {
			ran[i] = -gets(t, s)
		}
		readAll(t, cl, "at first")
		for i, s := range tc.Servers {
			ran[i] += gets(t, s)
		}
	})
	onReplicas := 0
	for i, n := range ran[3:] {
		if onReplicas += n; n == 0 {
			t.Errorf("replica %d has run no GET", i)
		}
	}
	if onMasters := ran[0] + ran[1] + ran[2]; onMasters != 0 || onReplicas != 90 {
		t.Errorf("%d GETs at masters, %d at replicas, %+v", onMasters, onReplicas, c.Stats())
	}
	// Pipelines, and MGET, come in order.
	var lines []string
	for i := range 90 {
		lines = append(lines, fmt.Sprint("GET k", i))
	}
	atReplicas(t, c, 91, func() {
		for i, got := range cl.do(lines...) {
			if got != bulk(fmt.Sprint(i)) {
				t.Fatalf("k%d: %q", i, got)
			}
		}
		cl.expect("MGET k1 k2 k3", "*3\r\n"+bulk("1")+bulk("2")+bulk("3"))
	})
	// What a pipeline writes it reads at the master, and no read passes a write.
	before := c.Stats().ReplicaReads
	for i := range 200 {
		a, b := fmt.Sprint("a", i), fmt.Sprint("b", i)
		got := cl.do("GET k1", "SET k1 "+a, "GET k1", "SET k1 "+b, "GET k1", "SET k1 1")
		if got[2] != bulk(a) || got[4] != bulk(b) || i > 0 && got[0] != bulk("1") {
			t.Fatalf("%q", got)
		}
	}
	if n := c.Stats().ReplicaReads; n != before {
		t.Errorf("%d of these reads were at replicas", n-before)
	}
	// Neither writes nor scripts nor what is about use go there, nor anything of who does not want to.
	cl.do("TOUCH k1", "OBJECT IDLETIME k1", "EVAL_RO return{1} 1 k1", "PFCOUNT k1", "DBSIZE")
	cl.e.Replicas(false)
	readAll(t, cl, "from masters")
	if n := c.Stats(); n.ReplicaReads != before {
		t.Errorf("%+v, before %d", n, before)
	}
	cl.e.Replicas(true)
	atReplicas(t, c, 1, func() { cl.do("TTL nothere") })
}

// atReplicas has read done until so many reads, or more, were at replicas: on a busy machine one may be out of service for a while.
func atReplicas(t testing.TB, c *Cluster, n int64, read func()) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " reads at replicas"), func() bool {
		serving(t, c, 3)
		before := c.Stats().ReplicaReads
		read()
		return c.Stats().ReplicaReads-before >= n
	})
}

// A replica that dies, or hangs, is not read from: reads under way are sent to the master.
func TestReplicaDies(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(*testredis.Server){
		"killed": func(s *testredis.Server) { s.Kill() },
		"frozen": func(s *testredis.Server) { s.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc, c, cl := reader(t, Options{RetryFor: time.Second})
			readAll(t, cl, "before")
			victim := tc.Servers[3]
			take(victim)
			t.Cleanup(func() {
				if name == "frozen" {
					victim.Cont()
				}
			})
			n := c.Snapshot().withID(tc.ID(victim))
			eventually(t, "a read is sent to the master instead", func() bool {
				n.serves.Store(true) // the look once a second may have found it out before a read
				began := time.Now()
				readAll(t, cl, name)
				t.Logf("90 reads took %v; %+v", time.Since(began), c.Stats())
				return c.Stats().ReplicaFailures > 0 || n.InTrouble() // then no read is sent to it any more
			})
			eventually(t, "the others are read from, and fail no read", func() bool {
				serving(t, c, 2)
				before := c.Stats()
				readAll(t, cl, "afterwards")
				n := c.Stats()
				return n.ReplicaFailures == before.ReplicaFailures && n.ReplicaReads > before.ReplicaReads
			})
			if name == "frozen" {
				victim.Cont()
				serving(t, c, 3)
				readAll(t, cl, "back")
			}
		})
	}
}

// A replica is promoted under reads; what was its master becomes its replica and is read from.
func TestReadsThroughFailover(t *testing.T) {
	t.Parallel()
	tc, c, cl := reader(t, Options{})
	done := make(chan error, 1)
	go func() { done <- tc.Failover(tc.Servers[3]) }()
	for under := true; under; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			under = false
		default:
		}
		readAll(t, cl, "under failover")
	}
	if err := tc.WaitOK(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old master is read from", func() bool {
		before := gets(t, tc.Servers[0])
		readAll(t, cl, "afterwards")
		return gets(t, tc.Servers[0]) > before
	})
	if s := c.Snapshot(); s.Owner(100).Addr != tc.Servers[3].Addr() {
		t.Errorf("slot 100 is with %s", s.Owner(100).Addr)
	}
}

// A slot that moves is read at masters from when that is known, and from its new master's replica some time after.
func TestReadsWhileASlotMoves(t *testing.T) {
	t.Parallel()
	tc, c, cl := reader(t, Options{})
	slot := Slot([]byte("k1"))
	from, err := tc.Owner(slot)
	if err != nil {
		t.Fatal(err)
	}
	to := tc.Servers[0]
	if to == from {
		to = tc.Servers[1]
	}
	if err := tc.BeginMove(slot, from, to); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the move is known", func() bool { return c.replicaReads.master[slot].Load() > time.Now().UnixNano() })
	if _, err := tc.MoveKeys(slot, from, to, 100); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(7 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) { // longer than settling
		cl.expect("GET k1", bulk("1"))
	}
	if err := tc.EndMove(slot, from, to); err != nil {
		t.Fatal(err)
	}
	for c.Snapshot().Owner(slot).Addr != to.Addr() {
		cl.expect("GET k1", bulk("1"))
		cl.do("SET k1 1")
	}
	before := c.Stats().ReplicaReads
	eventually(t, "its new replica is read from", func() bool {
		cl.expect("GET k1", bulk("1"))
		return c.Stats().ReplicaReads > before
	})
}

// A replica that is given to another master says MOVED, and its reads are answered all the same.
func TestReplicaChangesMaster(t *testing.T) {
	t.Parallel()
	tc, c, cl := reader(t, Options{Refresh: time.Second})
	tc.Servers[3].Do(t, "CLUSTER", "REPLICATE", tc.ID(tc.Servers[1]))
	for range 20 {
		readAll(t, cl, "moved")
	}
	eventually(t, "it is known whose replica it is", func() bool {
		readAll(t, cl, "moved")
		s := c.Snapshot()
		return len(s.copies[s.Owner(100)]) == 0 && len(s.copies[s.Owner(8000)]) == 2
	})
	serving(t, c, 3)
	readAll(t, cl, "afterwards")
}

// A user who may not say READONLY, or whom a replica does not have, reads at masters.
func TestReadsOfUsers(t *testing.T) {
	t.Parallel()
	tc, c, cl := reader(t, Options{})
	refused := 0
	c.OnRefused(func(upstream.Identity, *upstream.ReplyError) { refused++ })
	for i, s := range tc.Servers {
		s.Do(t, "ACL", "SETUSER", "bob", "on", ">b", "~*", "+@all", "-readonly")
		if i < 3 {
			s.Do(t, "ACL", "SETUSER", "eve", "on", ">e", "~*", "+@all")
		}
		s.Do(t, "ACL", "SETUSER", "ann", "on", ">a", "~*", "+@all")
	}
	for user, at := range map[string]bool{"bob": false, "eve": false, "ann": true} {
		before := c.Stats().ReplicaReads
		u := newClient(t, c, cl.table, 2)
		u.e.As(upstream.Identity{User: user, Password: user[:1], Proto: 2})
		u.e.Replicas(true)
		if at {
			atReplicas(t, c, 90, func() { readAll(t, u, user) })
			continue
		}
		readAll(t, u, user)
		if n := c.Stats().ReplicaReads; n != before {
			t.Errorf("%s: %d reads at replicas", user, n-before)
		}
	}
	if refused > 0 {
		t.Error("a replica's word was taken for the cluster's")
	}
}

// A long reply of a replica that hangs half way ends in an error, and is not begun again.
func TestStreamFromFrozenReplica(t *testing.T) {
	t.Parallel()
	const size = 48 << 20 // more than the sockets' buffers may take from the replica before it stops
	tc, c, cl := reader(t, Options{RetryFor: time.Second})
	key := keyIn(100)
	cl.expect("SET "+key+" "+strings.Repeat("x", size), "+OK\r\n")
	cl.e.Private(true)
	replica := tc.Servers[3]
	t.Cleanup(replica.Cont)
	for try := 1; ; try++ {
		replicated(t, tc)
		got := &pieces{}
		got.each = func() {
			if got.calls == 3 {
				replica.Stop()
			}
		}
		p := NewPlan(cl.table.command("GET", key))
		p.Stream(got)
		for _, r := range c.Snapshot().Replicas {
			r.serves.Store(true) // the SET may have kept it from answering in time whether it serves
		}
		began := time.Now()
		cl.e.Do(context.Background(), []*Plan{p})
		t.Logf("%d bytes had come; it ended after %v", got.all.Len(), time.Since(began).Round(time.Millisecond))
		if p.Reply != nil || strings.Count(got.all.String(), "$") != 1 {
			t.Errorf("%v after %d bytes", p.Err, got.all.Len())
		}
		if p.Err != nil {
			break
		}
		if try == 5 {
			t.Fatal("the reply came whole each time")
		}
		replica.Cont() // a look at the replica that came just then had the master asked
	}
	cl.expect("STRLEN "+key, fmt.Sprintf(":%d\r\n", size))
}

// A replica to which a bound of this proxy's allows a client no connection goes on serving the others.
func TestReplicaThatABoundKeepsAway(t *testing.T) {
	t.Parallel()
	o := Options{}
	o.Node.Budget = upstream.NewBudget(100, 1)
	_, c, cl := reader(t, o)
	cl.e.Private(true)
	owner := c.Snapshot().Owner(0)
	cl.e.Replicas(false)
	cl.expect("GET "+keyIn(0), "_\r\n") // has the only connection there may be, to the master
	cl.e.Replicas(true)
	eventually(t, "the bound keeps the read from the replica", func() bool {
		failures := c.Stats().ReplicaFailures
		cl.expect("GET "+keyIn(0), "_\r\n")
		if c.Stats().ReplicaFailures == failures { // it was not serving just then
			return false
		}
		for _, r := range c.Snapshot().copies[owner] {
			if !r.serves.Load() {
				t.Error("the replica serves nobody")
			}
		}
		return true
	})
}

// A read of which the replica's connection would have no copy is read at the master: after a time-out its client's next commands would be
// written over it.
func TestLongReadsAreNotForReplicas(t *testing.T) {
	t.Parallel()
	e := &Executor{replicas: replicaChoice{now: true, writes: map[int]bool{}}}
	for length, replica := range map[int]bool{100: true, upstream.CopiedBelow - 1: true, upstream.CopiedBelow: false, 1 << 20: false} {
		get := Command{Raw: make([]byte, length), Args: [][]byte{[]byte("GET"), []byte("k")}, Keys: []int{1}, Facts: FactsOf("get", []string{"readonly"}, nil)}
		if got := e.replicas.may(&NewPlan(get).units[0]); got != replica {
			t.Errorf("of %d bytes: %v", length, got)
		}
	}
}
