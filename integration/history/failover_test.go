package history

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	slots "github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/history"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// What may befall Redis where it keeps its data: it ends and comes back, its disk is full, another master takes its place, slots move. A failover
// is noted as a lapse: what Redis has acknowledged just before may be gone when it is over.

// killKept is kill -9 of a Redis that keeps its data, and a new start.
func killKept(n *nemesis) {
	n.r.Fault(history.ServerKilled, "kill -9 Redis")
	n.redis.Kill()
	n.wait(time.Duration(n.dice.IntN(500)) * time.Millisecond)
	n.redis.Restart()
}

// fillDisk leaves Redis no room. With appendfsync always it ends then, and it begins again when there is room.
func fillDisk(n *nemesis) {
	if n.disk == nil {
		return
	}
	free, err := n.disk.Fill()
	if err != nil {
		return
	}
	n.r.Fault(history.DiskFull, "the disk is full")
	n.wait(time.Duration(100+n.dice.IntN(900)) * time.Millisecond)
	free()
	n.redis.Restart()
}

// refuseWrites has Redis fail to write a snapshot, after which it takes no writes, as it does when there is no room for one.
func refuseWrites(n *nemesis) {
	c, err := n.dial(n.redis.Addr(), redis.DialReadTimeout(5*time.Second))
	if err != nil {
		return
	}
	defer c.Close()
	dir, err := redis.Strings(c.Do("CONFIG", "GET", "dir"))
	if err != nil {
		return
	}
	obstacle := filepath.Join(dir[1], "dump.rdb")
	_ = os.Remove(obstacle)
	if os.Mkdir(obstacle, 0o700) != nil {
		return
	}
	n.r.Fault(history.DiskFull, "Redis refuses writes: MISCONF")
	_, _ = c.Do("CONFIG", "SET", "save", "3600 1000000000")
	saved := func(how string) {
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
			_, _ = c.Do("BGSAVE")
			if info, err := redis.String(c.Do("INFO", "persistence")); err != nil || strings.Contains(info, "rdb_last_bgsave_status:"+how) {
				return
			}
		}
	}
	saved("err")
	n.wait(time.Duration(100+n.dice.IntN(2000)) * time.Millisecond)
	_ = os.Remove(obstacle)
	saved("ok")
	_, _ = c.Do("CONFIG", "SET", "save", "")
}

// switchMaster has the Sentinels put another node into the master's place. end is what makes them, and what it returns mends that.
func (n *nemesis) switchMaster(what string, end func(old *testredis.Server) (back func())) {
	n.group.AwaitWhole()
	old := n.group.Master()
	n.r.Fault(history.Failover, what)
	from := n.r.Now()
	back := end(old)
	n.group.AwaitSwitch(old)
	back()
	n.group.AwaitWhole() // a calm Sentinel that was refused would not log in again
	n.group.Calm()
	n.group.AwaitWhole()
	n.awaitProxies()
	n.r.Lapse(history.Lapse{From: from, To: n.r.Now()})
}

// awaitProxies waits until all proxies are where the Sentinels' master is.
func (n *nemesis) awaitProxies() {
	for _, p := range n.proxies {
		for end := time.Now().Add(history.NoReply); !strings.Contains(p.ask("INFO", "lockproxy"), "lockproxy_upstream_addr:"+n.group.Master().Addr()); {
			if time.Now().After(end) {
				n.r.Blame(history.Violation{Oracle: "liveness", Text: "a lockproxy does not follow the Sentinels"})
				return
			}
			<-time.After(10 * time.Millisecond)
		}
	}
}

func orderMaster(n *nemesis) {
	n.switchMaster("the Sentinels are told to fail over", func(*testredis.Server) func() { n.group.Failover(); return func() {} })
}

func killMaster(n *nemesis) {
	n.switchMaster("kill -9 the master", func(old *testredis.Server) func() {
		n.r.Fault(history.ServerKilled, "the master")
		old.Kill()
		n.group.Hasten()
		return old.Restart
	})
}

func freezeMaster(n *nemesis) {
	n.switchMaster("stop the master until another one has its place", func(old *testredis.Server) func() {
		n.r.Fault(history.ServerStopped, "the master")
		old.Stop()
		n.group.Hasten()
		return old.Cont
	})
}

// partMaster cuts the master, and one proxy with it, off from the replicas and the Sentinels, while clients reach both.
func partMaster(n *nemesis) {
	p, i := n.proxy()
	n.switchMaster(fmt.Sprint("cut off the master together with proxy ", i), func(old *testredis.Server) func() {
		n.r.Fault(history.Apart, "the master and a proxy")
		for _, l := range p.links {
			l.BlackHole()
		}
		n.letIn(old, false)
		n.group.Hasten()
		return func() {
			n.wait(time.Duration(n.dice.IntN(1000)) * time.Millisecond)
			n.letIn(old, true)
			for _, l := range p.links {
				l.Clear()
			}
		}
	})
}

// letIn says whether replicas and Sentinels may log in at a node.
func (n *nemesis) letIn(s *testredis.Server, in bool) {
	c, err := n.dial(s.Addr())
	if err != nil {
		return
	}
	defer c.Close()
	for _, user := range []string{"watching", "following"} {
		_, _ = c.Do("ACL", "SETUSER", user, map[bool]string{true: "on", false: "off"}[in])
		if !in {
			_, _ = c.Do("CLIENT", "KILL", "USER", user)
		}
	}
}

// killReplica is kill -9 of one, and a new start.
func killReplica(n *nemesis) {
	replicas := slices.DeleteFunc(slices.Clone(n.servers()), (*testredis.Server).Leads)
	s := replicas[n.dice.IntN(len(replicas))]
	n.r.Fault(history.ServerKilled, "kill -9 a replica")
	s.Kill()
	n.wait(time.Duration(n.dice.IntN(500)) * time.Millisecond)
	s.Restart()
	n.whole()
}

// whole waits until all replicas are in step again.
func (n *nemesis) whole() {
	if n.group != nil {
		n.group.AwaitWhole()
		return
	}
	if err := n.cluster.WaitOK(); err != nil {
		n.t.Error(err)
	}
}

// pair picks a master of the cluster and its replica.
func (n *nemesis) pair() (master, replica *testredis.Server) {
	all := n.cluster.Servers
	i := n.dice.IntN(len(all) / 2)
	master, replica = all[i], all[i+len(all)/2]
	if !master.Leads() {
		master, replica = replica, master
	}
	return master, replica
}

// replaceNode has a replica take the place of its master, which end ends, and which comes back by what end returns.
func (n *nemesis) replaceNode(what string, end func(master *testredis.Server) (back func())) {
	master, replica := n.pair()
	its, err := keysOf(master)
	if err != nil {
		n.t.Error(err)
		return
	}
	n.r.Fault(history.Failover, what)
	from := n.r.Now()
	back := end(master)
	if err := n.cluster.Replace(replica); err != nil {
		n.t.Error(err)
	}
	back()
	n.whole()
	n.r.Lapse(history.Lapse{From: from, To: n.r.Now(), Of: its})
}

func killNode(n *nemesis) {
	n.replaceNode("kill -9 a master", func(master *testredis.Server) func() {
		n.r.Fault(history.ServerKilled, "a master")
		master.Kill()
		return master.Restart
	})
}

func freezeNode(n *nemesis) {
	n.replaceNode("stop a master until its replica has its place", func(master *testredis.Server) func() {
		n.r.Fault(history.ServerStopped, "a master")
		master.Stop()
		soon := time.AfterFunc(5*time.Second, master.Cont) // whoever waits for all nodes waits for it, too
		return func() {
			if soon.Stop() {
				master.Cont()
			}
		}
	})
}

// orderNode is CLUSTER FAILOVER, which loses nothing: the replica is in step first.
func orderNode(n *nemesis) {
	_, replica := n.pair()
	n.r.Fault(history.Failover, "CLUSTER FAILOVER")
	if err := n.cluster.Failover(replica); err != nil {
		n.t.Error(err)
	}
	n.whole()
}

// moveSlots moves the slots of some locks that are in use to another master.
func moveSlots(n *nemesis) {
	for _, key := range n.r.Recent(3) {
		slot := slots.Slot([]byte(key))
		from, err := n.cluster.Owner(slot)
		if err != nil || from == nil {
			continue
		}
		to := from
		for to == from {
			to, _ = n.pair()
		}
		n.r.Fault(history.SlotMoved, "move the slot of "+key)
		if err := n.cluster.MoveSlot(slot, from, to); err != nil {
			n.t.Error(err)
		}
	}
}
