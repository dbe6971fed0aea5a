package quorum

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

func TestMain(m *testing.M) { testredis.VerifyTestMain(m) }

// TestQuorumProbeDoesAllAndLeavesNothing: on the nodes of a quorum all steps of the probe do what they are for, and no key is left.
func TestQuorumProbeDoesAllAndLeavesNothing(t *testing.T) {
	servers := testredis.StartSet(t, 3)
	var running sync.WaitGroup
	q := openStore(t, servers, func(work func()) { running.Go(work) })
	for i, n := range q.all {
		if refusal, err := n.Admit(t.Context(), 0, func() node.Site { return n.site() }); err != nil || n.Able() != nil || refusal != nil {
			t.Errorf("%s: %v %v", n.name, err, refusal)
		}
		if left := servers[i].Do(t, "DBSIZE").(int64); left != 0 {
			t.Errorf("%s: %d keys are left: %q", n.name, left, servers[i].Do(t, "KEYS", "*"))
		}
	}
	running.Wait()
}

// openStore is a store on these nodes, whose work in the background is begun by background.
func openStore(t *testing.T, servers []*testredis.Server, background func(work func())) *store {
	t.Helper()
	o := StoreOptions{NodeTimeout: 5 * time.Second} // for a busy machine
	for _, s := range servers {
		where, err := upstream.ParseURL(s.URL())
		target := where.Target()
		if err != nil {
			t.Fatal(err)
		}
		control := upstream.NewControl(target, upstream.ControlOptions{DialTimeout: 10 * time.Second})
		t.Cleanup(control.Close)
		o.Nodes = append(o.Nodes, Node{Name: s.Addr(), Control: control})
	}
	return newStore(lockstore.Host{
		UUID: uuid.NewString(), Log: slog.New(slog.DiscardHandler), Background: background,
		Sleep: func(ctx context.Context, d time.Duration) bool { return retry.Sleep(ctx, d, nil) },
	}, o)
}

// What a verb is to do on a node may begin late, on a busy machine after its owner has heard the answer of the others. It must not touch then
// what the owner has got from that node since.
func TestLateStepSparesWhatWasTakenSince(t *testing.T) {
	type owner struct {
		id     lockstore.ID
		counts lockstore.Counts // zero: a named one
	}
	release := func(q *store, o owner) error {
		named := o.counts.Total() == 0
		done, err := q.Release(t.Context(), &lockstore.Release{ID: o.id, Named: named, Whole: !named})
		if err == nil && done.Code != lockstore.Freed {
			err = fmt.Errorf("it is not freed: %d", done.Code)
		}
		return err
	}
	for kind, o := range map[string]owner{
		"connection":  {lockstore.ID{Key: "k", Owner: "me"}, lockstore.Counts{Writes: 1}},
		"named owner": {lockstore.ID{Key: "k", Owner: "job"}, lockstore.Counts{}},
	} {
		for name, late := range map[string]func(q *store) error{
			"UNLOCK": func(q *store) error { return release(q, o) },
			"RENEW": func(q *store) error {
				if _, err := q.Extend(t.Context(), lockstore.Extension{ID: o.id, Counts: o.counts, Lease: 20_000}); err != nil {
					return err
				}
				return release(q, o)
			},
		} {
			t.Run(name+" of a "+kind, func(t *testing.T) {
				t.Parallel()
				servers := testredis.StartSet(t, 3)
				var running sync.WaitGroup
				var mu sync.Mutex
				holdBack, heldBack := false, make(chan func(), 1)
				q := openStore(t, servers, func(work func()) {
					mu.Lock()
					defer mu.Unlock()
					if holdBack { // the first one, which is for the first node
						holdBack = false
						heldBack <- work
						return
					}
					running.Go(work)
				})
				take := func(lease int64) {
					t.Helper()
					got, err := q.Acquire(t.Context(), &lockstore.Acquire{ID: o.id, Counts: o.counts, Lease: lease})
					if err != nil || got.Code != lockstore.Granted {
						t.Fatal(got, err)
					}
				}
				take(30_000)
				running.Wait()
				mu.Lock()
				holdBack = true
				mu.Unlock()
				if err := late(q); err != nil {
					t.Fatal(err)
				}
				take(60_000) // of two nodes, at least
				before := servers[0].Do(t, "PTTL", "k").(int64)
				running.Go(<-heldBack)
				running.Wait()
				if after := servers[0].Do(t, "PTTL", "k").(int64); before > 30_000 && after <= 30_000 {
					t.Errorf("what was taken there anew had %d ms left, and has %d", before, after)
				}
			})
		}
	}
}
