package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/upstream"
)

// bubbleCluster is a Manager at work on a cluster of n masters in a World.
func bubbleCluster(t *testing.T, w *world.World, n int) (*Manager, []*world.Node) {
	t.Helper()
	var addrs []string
	for i := range n {
		addrs = append(addrs, fmt.Sprintf("10.0.0.%d:6379", i+1))
	}
	nodes := w.NewCluster(addrs...).Nodes()
	seeds := upstream.ClusterTarget{Seeds: addrs[:1], Node: upstream.Target{Network: "tcp", Dialer: w.Proxy("one")}}
	return shardedEngine(t, seeds, ManagerOptions{}, node.PubSubBoth), nodes
}

// free says whether a lock is free at its node.
func free(t *testing.T, n *world.Node, key string) bool {
	t.Helper()
	return n.Do(t, "EXISTS", key).(int64) == 0
}

// TestMultiUnlockBesideHungNode: what MULTIUNLOCK gives back on other nodes does not wait for one that hangs.
func TestMultiUnlockBesideHungNode(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		m, nodes := bubbleCluster(t, w, 2)
		cl, _ := client(m)
		keys := []string{nameIn("a", 0, 2), nameIn("b", 0, 2)}
		for i := range 20 {
			keys = append(keys, nameIn(fmt.Sprint("m", i, "-"), 1, 2))
		}
		if _, err := cl.MultiLock(t.Context(), keys, Request{}); err != nil {
			t.Fatal(err)
		}
		nodes[1].Stop()
		type reply struct {
			freed int64
			err   error
		}
		said := make(chan reply, 1)
		go func() {
			freed, err := cl.MultiUnlock(context.Background(), keys, UnlockRequest{})
			said <- reply{freed, err}
		}()
		time.Sleep(time.Second)
		for _, key := range keys[:2] {
			if !free(t, nodes[0], key) {
				t.Errorf("%s waits for the node that hangs", key)
			}
		}
		got := <-said
		nodes[1].Cont()
		var own *Error
		if got.freed != 2 || !errors.As(got.err, &own) {
			t.Error(got)
		}
	})
}

// TestMultiLockFailsBesideHungNode: what a MULTILOCK that failed has taken on other nodes does not wait for one that hangs.
func TestMultiLockFailsBesideHungNode(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		m, nodes := bubbleCluster(t, w, 3)
		keys := []string{nameIn("a", 0, 3), nameIn("b", 1, 3), nameIn("c", 2, 3)}
		other, _ := client(m)
		mustLock(t, other, Request{Key: keys[2]})
		cl, _ := client(m)
		failed := make(chan error, 1)
		go func() {
			_, err := cl.MultiLock(context.Background(), keys, Request{Blocks: true, Block: 3000})
			failed <- err
		}()
		time.Sleep(time.Second)
		if free(t, nodes[0], keys[0]) || free(t, nodes[1], keys[1]) {
			t.Fatal("not taken")
		}
		nodes[1].Stop()
		time.Sleep(3 * time.Second)
		if !free(t, nodes[0], keys[0]) {
			t.Errorf("%s waits for the node that hangs", keys[0])
		}
		if err := <-failed; !errors.Is(err, ErrNotAcquired) {
			t.Error(err)
		}
		nodes[1].Cont()
	})
}

// TestGoneClientBesideHungNode: a client that has gone leaves no locks on other nodes, however many it had on one that hangs.
func TestGoneClientBesideHungNode(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		m, nodes := bubbleCluster(t, w, 2)
		cl, _ := client(m)
		for i := range 4 * releaseAtOnce {
			mustLock(t, cl, Request{Key: nameIn(fmt.Sprint("m", i, "-"), 1, 2)})
		}
		var others []string
		for i := range releaseAtOnce {
			others = append(others, nameIn(fmt.Sprint("a", i, "-"), 0, 2))
			mustLock(t, cl, Request{Key: others[i]})
		}
		nodes[1].Stop()
		cl.Close(Gone)
		time.Sleep(time.Second)
		for _, key := range others {
			if !free(t, nodes[0], key) {
				t.Errorf("%s waits for the node that hangs", key)
			}
		}
		nodes[1].Cont()
	})
}

// TestVacantBesideHungNode: that a lock has ended is told at once also while another node hangs on which locks have ended. Those are told
// when that node is back.
func TestVacantBesideHungNode(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		m, nodes := bubbleCluster(t, w, 2)
		cl, _ := client(m)
		var others []string
		for i := range 20 {
			others = append(others, nameIn(fmt.Sprint("m", i, "-"), 1, 2))
			mustLock(t, cl, Request{Key: others[i], Lease: 1000})
		}
		key := nameIn("b", 0, 2)
		mustLock(t, cl, Request{Key: key, Lease: 3000})
		waiter := queueRedisson(t, nodes[0], dialNode(t, w, nodes[0]), key)
		other := queueRedisson(t, nodes[1], dialNode(t, w, nodes[1]), others[19])
		nodes[1].Stop()
		began := time.Now()
		waiter.told(time.Minute)
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("told after %v of a lease of 3 s", took)
		}
		nodes[1].Cont()
		other.told(time.Minute)
	})
}

// TestFairWaiterOfAHungNodeGoes: a client that goes while it stands in the fair queue of a node that hangs leaves no locks on other nodes.
func TestFairWaiterOfAHungNodeGoes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		m, nodes := bubbleCluster(t, w, 2)
		x, y := nameIn("x", 0, 2), nameIn("y", 1, 2)
		heldByRedisson(t, nodes[1], y)
		cl, _ := client(m)
		mustLock(t, cl, Request{Key: x})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			_, err := cl.Lock(ctx, Request{Key: y, Fair: true, Blocks: true})
			ended <- err
		}()
		eventually(t, 10*time.Second, "it waits", func() bool { return len(fairQueue(t, nodes[1], y)) == 1 })
		nodes[1].Stop()
		began := time.Now()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		cl.Close(Gone)
		eventually(t, 30*time.Second, "what it had is given back", func() bool { return free(t, nodes[0], x) })
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("given back after %v", took)
		}
		nodes[1].Cont()
		eventually(t, 5*time.Second, "it has left the queue", func() bool { return len(fairQueue(t, nodes[1], y)) == 0 })
	})
}
