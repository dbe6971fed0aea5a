package cluster

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	slots "github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// WAIT has its own time beside --upstream-timeout.
func TestClusterWaitBesideTheTimeout(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 3, 0)
	p := harness.StartClusterProxy(t, tc, "--upstream-timeout", "800ms")
	harness.Undisturbed(t, func() (wrong string) {
		w := harness.Dial(t, p.Addr())
		for _, time := range []string{"900", "2100"} { // the longer one is asked for in parts before 7.2
			if got, err := w.Try("WAIT", "1", time); got != ":0\r\n" {
				return fmt.Sprintf("WAIT 1 %s: %q %v", time, got, err)
			}
		}
		return ""
	})
}

// WAIT is about what the client wrote at every master, over whichever connection: while one replica is frozen, the write that it lacks is not
// acknowledged.
func TestClusterWaitCoversAllMasters(t *testing.T) {
	t.Parallel()
	const masters = 2
	tc := testredis.StartCluster(t, masters, 1)
	w := harness.Dial(t, harness.StartClusterProxy(t, tc).Addr())
	for i, replica := range tc.Servers[masters:] {
		replica.Stop()
		defer replica.Cont()
		for key := range 8 { // at both masters
			harness.Expect(t, w, "+OK\r\n", "SET", fmt.Sprint("key-", key), "v")
		}
		began := time.Now()
		harness.Expect(t, w, ":0\r\n", "WAIT", "1", "500")
		if took := time.Since(began); took < 400*time.Millisecond {
			t.Errorf("replica %d is frozen: it took only %v", i, took)
		}
		w.Send("WAIT", "1", "0")
		replica.Cont()
		if got := w.Read(); got != ":1\r\n" {
			t.Errorf("replica %d goes on: %q", i, got)
		}
	}
}

// WAITAOF is about the files of every master.
func TestClusterWaitaof(t *testing.T) {
	t.Parallel()
	testredis.NeedsAtLeast(t, 7, 2)
	tc := testredis.StartCluster(t, 2, 0, "--appendonly yes", "--appendfsync no")
	w := harness.Dial(t, harness.StartClusterProxy(t, tc).Addr())
	for i, s := range tc.Servers {
		for key := range 8 {
			harness.Expect(t, w, "+OK\r\n", "SET", fmt.Sprint("key-", key), "v")
		}
		began := time.Now()
		harness.Expect(t, w, "*2\r\n:0\r\n:0\r\n", "WAITAOF", "1", "0", "500")
		if took := time.Since(began); took < 400*time.Millisecond {
			t.Errorf("%d of them sync their files: it took only %v", i, took)
		}
		s.Do(t, "CONFIG", "SET", "appendfsync", "always")
	}
	harness.Expect(t, w, "*2\r\n:1\r\n:0\r\n", "WAITAOF", "1", "0", "0")
}

// WAIT of a user who may not make the write in front is served by the service account, at all masters, or refused.
func TestClusterWaitOfUsersWithFewRights(t *testing.T) {
	t.Parallel()
	testredis.NeedsAtLeast(t, 7, 2)
	tc := testredis.StartCluster(t, 2, 0)
	rights := func(words ...any) {
		for _, s := range tc.Servers {
			s.Do(t, append([]any{"ACL", "SETUSER"}, words...)...)
		}
	}
	rights("waits", "on", "nopass", "+wait", "+hello", "+client|id")
	w := harness.Dial(t, harness.StartClusterProxy(t, tc).Addr())
	harness.Expect(t, w, "+OK\r\n", "AUTH", "waits", "any")
	harness.Expect(t, w, ":0\r\n", "WAIT", "1", "1")
	rights("default", "-function|restore")
	harness.Expect(t, w, "-NOPERM WAIT needs a write of lockproxy's own in front, on Redis 7.2 and newer: this user lacks +function|restore, "+
		"and the service account lacks that or +wait\r\n", "WAIT", "1", "1")
}

// While a master and its replica change places, WAIT goes to those that are masters by then.
func TestClusterWaitDuringFailovers(t *testing.T) {
	t.Parallel()
	tc := testredis.StartCluster(t, 2, 1)
	w := harness.Dial(t, harness.StartClusterProxy(t, tc).Addr())
	slot := slots.Slot([]byte("k"))
	var over atomic.Bool
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for !over.Load() {
			if got, err := w.Try("WAIT", "0", "0"); err != nil || got[0] != ':' {
				t.Errorf("%q %v", got, err)
				return
			}
			time.Sleep(harness.Breath(time.Millisecond))
		}
	}()
	for range 3 {
		if err := tc.Failover(replicaOf(t, tc, slot)); err != nil {
			t.Error(err)
		}
	}
	over.Store(true)
	<-finished
}
