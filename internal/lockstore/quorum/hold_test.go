package quorum

import (
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// held is the store of a quorum on which a connection has the plain lock k. running has what goes on behind its answers.
func held(t *testing.T) (servers []*testredis.Server, q *store, id lockstore.ID, running *sync.WaitGroup) {
	t.Helper()
	servers, running = testredis.StartSet(t, 3), &sync.WaitGroup{}
	q = openStore(t, servers, func(work func()) { running.Go(work) })
	id = lockstore.ID{Key: "k", Owner: "me"}
	if got, err := q.Acquire(t.Context(), &lockstore.Acquire{ID: id, Counts: lockstore.Counts{Writes: 1}, Lease: 30_000}); err != nil || got.Code != lockstore.Granted {
		t.Fatal(got, err)
	}
	running.Wait()
	return servers, q, id, running
}

// A LOCK that was not won has its votes taken back in the background. Where that gives back what an UNLOCK is to give back, after a LOCK that
// was won, the node had the lock all the same.
func TestUnlockCountsWhatWasTakenBackForIt(t *testing.T) {
	_, q, id, running := held(t)
	for _, h := range q.holds.want(id, lockstore.Counts{}, true)[:2] {
		h.dropVote(time.Now().Add(time.Minute))
	}
	if done, err := q.Release(t.Context(), &lockstore.Release{ID: id}); err != nil || done.Code != lockstore.Freed {
		t.Errorf("UNLOCK of what was held: %d, %v", done.Code, err)
	}
	running.Wait()
	for _, h := range q.holds.want(id, lockstore.Counts{Writes: 1}, false) {
		if h.given != nil {
			t.Errorf("what %s said before is believed of the next hold, too", h.node.name)
		}
	}
	if done, err := q.Release(t.Context(), &lockstore.Release{ID: id}); err != nil || done.Code != lockstore.NotHeld {
		t.Errorf("UNLOCK of what no node has: %d, %v", done.Code, err)
	}
	running.Wait()
}

// The answer to an UNLOCK may come from a node when the next LOCK is under way already. It is none to the UNLOCK of that one.
func TestLateAnswerToAnUnlockIsNotTheNextOnes(t *testing.T) {
	servers, q, id, running := held(t)
	for _, h := range q.holds.want(id, lockstore.Counts{Writes: 1}, false)[:2] {
		h.gave([]int64{lockstore.NotHeld, 0})
		q.holds.leave(h)
	}
	if done, err := q.Release(t.Context(), &lockstore.Release{ID: id, Whole: true}); err != nil || done.Code != lockstore.Freed {
		t.Errorf("UNLOCK of what was held: %d, %v", done.Code, err)
	}
	running.Wait()
	for _, s := range servers {
		if s.Do(t, "EXISTS", "k").(int64) != 0 {
			t.Errorf("%s still has the lock", s.Addr())
		}
	}
}

// Whoever stops seeing to it that a node has none of a hold, since that is wanted again, does not keep the next one from it.
func TestDropEndsAndBeginsAnew(t *testing.T) {
	_, q, id, _ := held(t)
	want := func(writes int64) *nodeHold { return q.holds.want(id, lockstore.Counts{Writes: writes}, false)[0] }
	if want(1).mayDrop() {
		t.Error("what is wanted is dropped")
	}
	for range 2 {
		h := want(0)
		if !h.mayDrop() || h.mayDrop() {
			t.Error("not one alone sees to it")
		}
		if h.dropped(false) {
			t.Error("it is not over")
		}
		if want(1); !h.dropped(false) {
			t.Error("it goes on although the hold is wanted")
		}
	}
	if h := want(0); !h.mayDrop() || !h.dropped(true) || !h.mayDrop() {
		t.Error("it cannot begin anew")
	}
}

// A renewal that begins late makes nothing on a node that is not to have the hold any more; the others in its batch are renewed.
func TestLateRenewalMakesNothing(t *testing.T) {
	servers, q, id, running := held(t)
	other := lockstore.ID{Key: "other", Owner: "me"}
	q.holds.want(other, lockstore.Counts{Writes: 1}, false)
	q.holds.want(id, lockstore.Counts{}, false)
	if done, err := q.Release(t.Context(), &lockstore.Release{ID: id}); err != nil || done.Code != lockstore.Freed {
		t.Fatal(done, err)
	}
	running.Wait()
	r := lockstore.Renewal{Allow: time.Second, Holds: []lockstore.Renewed{
		{ID: id, Counts: lockstore.Counts{Writes: 1}, Lease: 30_000}, {ID: other, Counts: lockstore.Counts{Writes: 1}, Lease: 30_000}}}
	if out, err := q.Renew(t.Context(), r); err != nil || out[0] != lockstore.Undecided || out[1] != lockstore.NotThere {
		t.Error(out, err)
	}
	running.Wait()
	for _, s := range servers {
		if s.Do(t, "EXISTS", "k").(int64) != 0 || s.Do(t, "EXISTS", "other").(int64) != 1 {
			t.Errorf("%s has %q", s.Addr(), s.Do(t, "KEYS", "*"))
		}
	}
}

// While a step on a connection's hold is under way on a node, a renewal is not sent there: the others decide. The next one gives that node the hold
// again.
func TestStepsOnOneHoldFollowEachOther(t *testing.T) {
	servers := testredis.StartSet(t, 3)
	var running sync.WaitGroup
	q := openStore(t, servers, func(work func()) { running.Go(work) })
	id, counts := lockstore.ID{Key: "k", Owner: "me"}, lockstore.Counts{Writes: 1}
	if got, err := q.Acquire(t.Context(), &lockstore.Acquire{ID: id, Counts: counts, Lease: 30_000}); err != nil || got.Code != lockstore.Granted {
		t.Fatal(got, err)
	}
	running.Wait()
	servers[2].Do(t, "DEL", "k")
	renewed := func() bool {
		out, err := q.Renew(t.Context(), lockstore.Renewal{Allow: time.Second, Holds: []lockstore.Renewed{{ID: id, Counts: counts, Lease: 30_000}}})
		if err != nil || out[0] != lockstore.StillThere {
			t.Error(out, err)
		}
		running.Wait()
		return servers[2].Do(t, "EXISTS", "k").(int64) == 1
	}
	until := time.Now().Add(5 * time.Second)
	h, want := q.holds.of(q.all[2], id)
	defer q.holds.leave(h)
	end, ok := h.beginStep(t.Context(), want, until)
	if !ok {
		t.Fatal("somebody is at the hold")
	}
	if renewed() {
		t.Error("the hold was renewed beside another step")
	}
	end(nil)
	for range 20 { // on a busy machine two nodes may have answered before the third is asked
		if renewed() {
			return
		}
	}
	t.Error("the hold is renewed no more")
}

// A connection's hold is forgotten once no node is to have any of it.
func TestNothingIsKeptOfWhatWasGivenBack(t *testing.T) {
	servers := testredis.StartSet(t, 3)
	var running sync.WaitGroup
	q := openStore(t, servers, func(work func()) { running.Go(work) })
	for _, kind := range lockstore.Kinds[:3] {
		id := lockstore.ID{Key: kind.String(), Owner: "me", Kind: kind}
		counts := lockstore.Counts{}.With(kind, 1)
		if got, err := q.Acquire(t.Context(), &lockstore.Acquire{ID: id, Counts: counts, Lease: 30_000}); err != nil || got.Code != lockstore.Granted {
			t.Fatal(got, err)
		}
		if done, err := q.Release(t.Context(), &lockstore.Release{ID: id, Whole: true}); err != nil || done.Code != lockstore.Freed {
			t.Fatal(done, err)
		}
	}
	running.Wait()
	if len(q.holds.byKey) != 0 {
		t.Errorf("%d are kept", len(q.holds.byKey))
	}
	for _, s := range servers {
		if left := s.Do(t, "DBSIZE").(int64); left != 0 {
			t.Errorf("%d keys are left: %q", left, s.Do(t, "KEYS", "*"))
		}
	}
}
