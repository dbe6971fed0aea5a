package sharded

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// Of many LOCKs that wait for replicas so many are under way as there are places, and the others are told so; a renewal goes past them.
// The connections are closed when nobody needs them any more.
func TestLocksThatWaitForReplicasAreBounded(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	d := at(t, s.URL())
	connections := func() int { return strings.Count(fmt.Sprintf("%s", s.Do(t, "CLIENT", "LIST")), "name=lockproxy") }
	took := lockstore.ID{Key: "held", Owner: "me"}
	if got, err := d.Acquire(t.Context(), &lockstore.Acquire{ID: took, Counts: lockstore.Counts{Writes: 1}, Lease: 60_000, Patience: time.Minute}); err != nil || got.Code != lockstore.Granted {
		t.Fatal(got, err)
	}
	// One for scripts, which trial locks use, too, and two for wake-ups, which are made meanwhile.
	const before = 3
	eventually(t, "all connections of a store that is not busy are there", func() bool { return connections() == before })
	var crowded, granted atomic.Int64
	var running sync.WaitGroup
	for i := range 2 * replicaVerbs {
		running.Go(func() {
			a := &lockstore.Acquire{ID: lockstore.ID{Key: fmt.Sprint("k", i), Owner: "me"}, Counts: lockstore.Counts{Writes: 1}, Lease: 60_000, Replicas: 1, ReplicaWait: 8 * time.Second, Patience: time.Minute}
			switch got, err := d.Acquire(t.Context(), a); {
			case errors.Is(err, errCrowded) && upstream.IsNotSent(err):
				crowded.Add(1)
			case err == nil && got.Code == lockstore.Granted && got.Acked == 0:
				granted.Add(1)
			default:
				t.Error(got, err)
			}
		})
	}
	eventually(t, "the places are taken", func() bool { return connections() >= before+replicaVerbs })
	began := time.Now()
	once := lockstore.Counts{Writes: 1}
	renewed, err := d.Renew(t.Context(), lockstore.Renewal{Allow: 5 * time.Second, Holds: []lockstore.Renewed{{ID: took, Counts: once, Lease: 60_000}}})
	if took := time.Since(began); err != nil || !slices.Equal(renewed, []int64{lockstore.StillThere}) || took > 6*time.Second {
		t.Errorf("renewed after %v: %v, %v", took, renewed, err)
	}
	if most := connections() - before; most > replicaVerbs+2 { // the renewal has one, and so has the client that makes them
		t.Errorf("%d connections", most)
	}
	running.Wait()
	if crowded.Load() != replicaVerbs || granted.Load() != replicaVerbs {
		t.Errorf("%d were sent, %d were not", granted.Load(), crowded.Load())
	}
	d.turns.mu.Lock()
	if len(d.turns.all) != 0 {
		t.Error("places are kept that nobody uses")
	}
	d.turns.mu.Unlock()
	eventually(t, "the connections are closed", func() bool { return connections() <= before+1 })
}

// TestRefusedLockWaitsForNoReplica: what somebody else has is refused at once.
func TestRefusedLockWaitsForNoReplica(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	d := at(t, s.URL())
	s.Do(t, "HSET", "k", "other", 1)
	began := time.Now()
	a := &lockstore.Acquire{ID: lockstore.ID{Key: "k", Owner: "me"}, Counts: lockstore.Counts{Writes: 1}, Lease: 60_000, Replicas: 1, ReplicaWait: time.Minute, Patience: time.Minute}
	if got, err := d.Acquire(t.Context(), a); err != nil || got.Code != lockstore.Refused || time.Since(began) > 30*time.Second {
		t.Errorf("after %v: %v, %v", time.Since(began), got, err)
	}
}
