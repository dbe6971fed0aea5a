package testredis

import (
	"errors"
	"fmt"
	"testing"

	"github.com/gomodule/redigo/redis"
)

func TestClusterOfMasters(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3, 0)
	for i, s := range c.Servers {
		owner, err := c.Owner(clusterSlots * i / 3)
		if err != nil || owner != s {
			t.Fatalf("slot %d: %v", clusterSlots*i/3, err)
		}
	}
	from, to := c.Servers[1], c.Servers[2]
	slot, err := redis.Int(from.Do(t, "CLUSTER", "KEYSLOT", "a{key1}"), nil) // 9189
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		from.Do(t, "SET", fmt.Sprintf("%d{key1}", i), i)
	}
	if err := c.MoveSlot(slot, from, to); err != nil {
		t.Fatal(err)
	}
	if n, err := redis.Int(to.Do(t, "CLUSTER", "COUNTKEYSINSLOT", slot), nil); n != 50 || err != nil {
		t.Fatalf("%d keys moved, %v", n, err)
	}
	if err := c.WaitOK(); err != nil {
		t.Fatal(err)
	}
	if owner, err := c.Owner(slot); owner != to || err != nil {
		t.Fatalf("the slot was not moved: %v", err)
	}
}

func TestClusterFailover(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3, 1)
	if err := c.Failover(c.Servers[3]); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitOK(); err != nil {
		t.Fatal(err)
	}
	c.Servers[3].Kill() // of which the others hear nothing
	if err := c.Replace(c.Servers[0]); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitOK(); err != nil {
		t.Fatal(err)
	}
	if owner, err := c.Owner(0); err != nil || owner != c.Servers[0] {
		t.Errorf("the old master is not back in its place: %v %v", owner, err)
	}
	c.Servers[3].Restart()
	if err := c.WaitOK(); err != nil {
		t.Fatal(err)
	}
	if err := c.Watchful(true); err != nil {
		t.Fatal(err)
	}
	c.Servers[0].Kill()
	if err := c.until(func() error {
		owner, err := c.Owner(0)
		if err == nil && owner != c.Servers[3] {
			err = fmt.Errorf("nobody has found the master dead and taken its place")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitOK(); err != nil {
		t.Fatal(err)
	}
}

// A replica that was elected a moment ago, and elected out, keeps its place when it is elected again: a master that comes back does not take it.
func TestReplacedSoonAgain(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 2, 1)
	master, replica := c.Servers[0], c.Servers[2]
	for _, s := range []*Server{replica, master} {
		if err := errors.Join(c.Failover(s), c.WaitOK()); err != nil {
			t.Fatal(err)
		}
	}
	master.Kill()
	err := c.Replace(replica)
	master.Restart()
	if err = errors.Join(err, c.WaitOK()); err != nil {
		t.Fatal(err)
	}
	if !replica.Leads() || master.Leads() {
		t.Error("the master that was killed has its place again")
	}
}
