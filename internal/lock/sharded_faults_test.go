package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestClusterFailoverUnderLoad: masters are failed over by order, and one is killed, while 4 proxies count under locks that a
// replica has before they count. No add is lost: what is judged is the lock, the counters are on another server.
func TestClusterFailoverUnderLoad(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 1, testredis.QuickFailover)
	var all []*Manager
	for range 4 {
		all = append(all, clusterEngine(t, tc, ManagerOptions{Watchdog: 10 * time.Second}))
	}
	c := count(t, 1<<40, 50, Request{Blocks: true, Replicas: 1}, 10, all...)
	fail := func(what string, err error) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for range 2 {
		fail("failover", tc.Failover(tc.Servers[3]))
		fail("after it", tc.WaitOK())
		fail("failback", tc.Failover(tc.Servers[0]))
		fail("after it", tc.WaitOK())
	}
	more := func(n int64, what string) {
		from := c.added.Load()
		t.Logf("%s: %d added", what, from)
		eventually(t, 2*time.Minute, what, func() bool { return c.added.Load() >= from+n })
	}
	more(500, "after the failovers")
	tc.Servers[1].Kill()
	eventually(t, time.Minute, "its replica follows", func() bool {
		s, err := tc.Owner(cluster.Slots / 2)
		return err == nil && s == tc.Servers[4]
	})
	refused := c.refused.Load()
	eventually(t, time.Minute, "nobody has a lock without a replica there", func() bool { return c.refused.Load() > refused+20 })
	tc.Servers[1].Restart()
	fail("in the end", tc.WaitOK())
	more(1000, "when it is back")
	c.left.Store(0)
	c.wait()
}

// mover moves slots to the next node and on, key by key, until it is stopped and has moved two at least.
func mover(t *testing.T, tc *testredis.Cluster, slots []int, slow time.Duration) (stop func() int) {
	done, quit, moves := make(chan struct{}), make(chan struct{}), 0
	at := map[int]*testredis.Server{}
	if err := tc.WaitOK(); err != nil {
		t.Fatal(err)
	}
	for _, slot := range slots {
		s, err := tc.Owner(slot)
		if err != nil || s == nil {
			t.Fatal(s, err)
		}
		at[slot] = s
	}
	go func() {
		defer close(done)
		for {
			for _, slot := range slots {
				from := at[slot]
				to := tc.Servers[0]
				for i, s := range tc.Servers[:3] {
					if s == from {
						to = tc.Servers[(i+1)%3]
					}
				}
				if err := moveSlowly(tc, slot, from, to, slow); err != nil {
					t.Error(err)
					return
				}
				moves++
				at[slot] = to
				// Redis' nodes lose a slot when the next one moves before all have heard: each then sends to another.
				if err := tc.WaitOK(); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-quit:
					if moves >= 2 {
						return
					}
				default:
				}
			}
		}
	}()
	return func() int {
		close(quit)
		<-done
		return moves
	}
}

func moveSlowly(tc *testredis.Cluster, slot int, from, to *testredis.Server, slow time.Duration) error {
	if err := tc.BeginMove(slot, from, to); err != nil {
		return err
	}
	time.Sleep(slow)
	for {
		n, err := tc.MoveKeys(slot, from, to, 1)
		if err != nil {
			return err
		}
		time.Sleep(slow)
		if n == 0 {
			return tc.EndMove(slot, from, to)
		}
	}
}

// TestClusterReshardUnderLoad: slots move while locks in them are taken, waited for and held. None is lost, nobody waits
// for a message that does not come: the poll is an hour.
func TestClusterReshardUnderLoad(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	o := ManagerOptions{Poll: time.Hour, Watchdog: 8 * time.Second}
	var all []*Manager
	for range 3 { // nothing is refused because a busy machine takes long
		all = append(all, retryingEngine(t, seedsOf(t, tc), time.Minute, o))
	}
	holder, lost := client(all[0])
	var slots []int
	for i := range 10 {
		slots = append(slots, slotOf(fmt.Sprint("counted", i)))
		mustLock(t, holder, Request{Key: fmt.Sprintf("{counted%d}held", i)})
		mustLock(t, holder, Request{Key: fmt.Sprintf("{counted%d}named", i), Owner: "o", Lease: 600_000})
	}
	c := count(t, 1<<40, 10, Request{Blocks: true}, 8, all...)
	moves := 0
	for round := range 4 {
		stop := mover(t, tc, slots, 2*time.Millisecond)
		time.Sleep(2 * time.Second)
		moves += stop()
		// No further move has everybody try: who was not woken in the last ones stays asleep.
		before := c.added.Load()
		eventually(t, time.Minute, "counting goes on", func() bool { return c.added.Load() > before+500 })
		if round == 3 {
			c.left.Store(0)
		}
	}
	finished := make(chan struct{})
	go func() { c.work.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-time.After(time.Minute):
		t.Fatal("somebody waits for ever")
	}
	c.wait()
	t.Logf("%d slots moved", moves)
	if n := c.lost.Load() + c.refused.Load(); n > 0 || lost.reasons() != "" || moves < 8 {
		t.Errorf("%d went wrong, the holder lost %q", n, lost.reasons())
	}
	for i := range 10 {
		mustUnlock(t, holder, UnlockRequest{Key: fmt.Sprintf("{counted%d}held", i)}, true)
		mustUnlock(t, holder, UnlockRequest{Key: fmt.Sprintf("{counted%d}named", i), Owner: "o"}, true)
	}
}

// TestClusterStuckMove: while a slot is half-way, and stays so, held locks are renewed one by one on either side; others are
// refused after a while, and wait if they may. When the move is over all goes on.
func TestClusterStuckMove(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	m := clusterEngine(t, tc, ManagerOptions{Watchdog: 8 * time.Second, Poll: time.Hour})
	cl, lost := client(m)
	slot := slotOf("stuck")
	from := owner(t, tc, "stuck")
	to := tc.Servers[0]
	if to == from {
		to = tc.Servers[1]
	}
	for i := range 6 {
		mustLock(t, cl, Request{Key: fmt.Sprint("{stuck}", i)})
	}
	if err := tc.BeginMove(slot, from, to); err != nil {
		t.Fatal(err)
	}
	if n, err := tc.MoveKeys(slot, from, to, 3); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	other, _ := client(m)
	began, renewed := time.Now(), m.Stats().Renewed
	if _, err := other.Lock(context.Background(), Request{Key: "{stuck}new", Blocks: true, Block: 200}); !lockstore.NotSent(err) {
		t.Errorf("a LOCK with BLOCK 200 in a slot that is half-way: %v", err)
	}
	if _, err := other.Lock(context.Background(), Request{Key: "{stuck}new", Lease: 1000}); !lockstore.NotSent(err) {
		t.Errorf("a LOCK in a slot that is half-way: %v", err)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("it was tried for %v", took)
	}
	waits := locking(other, Request{Key: "{stuck}0", Blocks: true})
	eventually(t, time.Minute, "each is renewed for longer than a lease", func() bool { return m.Stats().Renewed >= renewed+6*4 })
	if lost.reasons() != "" {
		t.Errorf("lost: %s", lost.reasons())
	}
	if err := moveSlowly(tc, slot, from, to, 0); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		mustUnlock(t, cl, UnlockRequest{Key: fmt.Sprint("{stuck}", i)}, true)
	}
	granted(t, waits, "who waited for the move")
}

// TestClusterWakeUpAfterMove: a waiter listens where the slot has gone, also when nothing else happens there.
func TestClusterWakeUpAfterMove(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	for _, way := range []sharded.PubSub{node.PubSubSharded, node.PubSubBoth, node.PubSubClassic} {
		m := clusterEngine(t, tc, ManagerOptions{Poll: time.Hour, Watchdog: time.Hour}, way)
		key := "roams" + string(way)
		s := owner(t, tc, key)
		heldByRedisson(t, s, key)
		cl, _ := client(m)
		got := locking(cl, Request{Key: key, Blocks: true})
		channel := lockstore.ChannelOf(key)
		listened := func() bool { return subscribers(t, owner(t, tc, key), channel) == len(way.Ways()) }
		eventually(t, 30*time.Second, "listened to", listened)
		for i := range 4 {
			from, to := owner(t, tc, key), tc.Servers[i%3]
			if from == to {
				continue
			}
			if err := errors.Join(tc.MoveSlot(slotOf(key), from, to), tc.WaitOK()); err != nil { // all have heard of it before the next one
				t.Fatal(err)
			}
			eventually(t, 30*time.Second, "listened to at the new node", listened)
		}
		eventually(t, 30*time.Second, "it has tried again", func() bool { return settledDown(m, key) })
		s = owner(t, tc, key)
		s.Do(t, "DEL", key)
		verb := "SPUBLISH"
		if way == node.PubSubClassic {
			verb = "PUBLISH"
		}
		s.Do(t, verb, channel, "0")
		granted(t, got, string(way))
	}
}

// TestClusterMasterKilled: of the locks on a master that dies each is still held on the one that follows, or its holder is told;
// who waited goes on.
func TestClusterMasterKilled(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 1, testredis.QuickFailover)
	m := clusterEngine(t, tc, ManagerOptions{Watchdog: 20 * time.Second})
	other := clusterEngine(t, tc, ManagerOptions{Watchdog: 20 * time.Second})
	cl, lost := client(m)
	const locks = 200
	key := func(i int) string { return fmt.Sprint("held", i) }
	var work sync.WaitGroup
	for i := range locks {
		mustLock(t, cl, Request{Key: key(i)})
	}
	waited := make(chan error, 2*locks)
	for i := range locks {
		work.Add(1)
		go func() {
			defer work.Done()
			c, _ := client(other)
			_, err := c.Lock(context.Background(), Request{Key: key(i), Blocks: true})
			if err == nil {
				_, err = c.Unlock(context.Background(), UnlockRequest{Key: key(i)})
			}
			waited <- err
		}()
	}
	eventually(t, 30*time.Second, "all wait", func() bool { return other.Stats().Waiting == locks })
	killed := tc.Servers[0]
	killed.Kill()
	eventually(t, 30*time.Second, "a failover", func() bool {
		s, err := tc.Owner(0)
		return err == nil && s == tc.Servers[3]
	})
	eventually(t, 30*time.Second, "the failover is known here", func() bool {
		n := m.store.Location(nameIn("failed", 0, 3)).Node.(*cluster.Node)
		return n != nil && n.Addr == tc.Servers[3].Addr()
	})
	told := map[string]bool{}
	for i := range locks {
		free, err := cl.Unlock(context.Background(), UnlockRequest{Key: key(i)})
		var e *Error
		switch {
		case err == nil && free:
		case errors.As(err, &e) && e.Code == "LOCKLOST":
			told[key(i)] = true
		default:
			t.Errorf("%s: %v %v", key(i), free, err)
		}
	}
	for k := range told {
		if slotOf(k) >= cluster.Slots/3 {
			t.Errorf("%s was on another node", k)
		}
	}
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		t.Fatal("somebody waits for ever")
	}
	for range locks {
		if err := <-waited; err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d were lost and told (%q pushed)", len(told), lost.reasons())
}

// TestClusterLossIsTold: a lock that the promoted replica does not have is reported lost by itself.
func TestClusterLossIsTold(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 1, testredis.QuickFailover)
	m := clusterEngine(t, tc, ManagerOptions{Watchdog: 2 * time.Minute}) // longer than a failover takes on a busy machine
	cl, lost := client(m)
	mine, same := nameIn("gone", 0, 3), nameIn("kept", 0, 3)
	lockCopied(t, cl, Request{Key: same, Replicas: 1})
	master, replica := tc.Servers[0], tc.Servers[3]
	replica.Stop()
	master.Do(t, "CLIENT", "KILL", "TYPE", "replica") // it hears of nothing any more
	mustLock(t, cl, Request{Key: mine})
	master.Kill()
	replica.Cont()
	eventually(t, 40*time.Second, "told", func() bool { return lost.reasons() == mine+":failover " })
	if replica.Do(t, "EXISTS", mine).(int64) != 0 {
		t.Error("the lost lock was taken anew")
	}
	if _, err := cl.Unlock(context.Background(), UnlockRequest{Key: mine}); !isCode(err, "LOCKLOST") {
		t.Error(err)
	}
	mustUnlock(t, cl, UnlockRequest{Key: same}, true)
}

// TestClusterSlotWithoutItsLocks: a lock that did not come along when its slot moved is reported lost then, long before it would be
// renewed, and is not taken anew.
func TestClusterSlotWithoutItsLocks(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	m := clusterEngine(t, tc, ManagerOptions{Watchdog: 6 * time.Hour})
	cl, lost := client(m)
	mine, same := "{moves}mine", "{moves}same"
	mustLock(t, cl, Request{Key: mine})
	mustLock(t, cl, Request{Key: same, Lease: 3600000})
	from := owner(t, tc, mine)
	to := tc.Servers[0]
	if to == from {
		to = tc.Servers[1]
	}
	slot := slotOf(mine)
	if err := tc.BeginMove(slot, from, to); err != nil {
		t.Fatal(err)
	}
	from.Do(t, "DEL", mine)
	if err := moveSlowly(tc, slot, from, to, 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "told", func() bool { return lost.reasons() == mine+":gone " })
	if to.Do(t, "EXISTS", mine).(int64) != 0 {
		t.Error("the lost lock was taken anew")
	}
	mustUnlock(t, cl, UnlockRequest{Key: same}, true)
}
