package redisson

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// row is who was served, and when the lock was given back last.
type row struct {
	mu       sync.Mutex // guards all below
	inside   bool
	served   []int
	took     []time.Duration // since the lock was given back
	released time.Time
}

// section locks, looks that nobody else is inside, and unlocks.
func (r *row) section(s side, l lock, number int) error {
	if _, err := s.lock(l, long); err != nil {
		return err
	}
	if !r.enter(number) {
		return fmt.Errorf("%v: two are inside", l)
	}
	time.Sleep(2 * time.Millisecond)
	r.leave()
	return s.unlock(l)
}

func (r *row) enter(number int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inside {
		return false
	}
	r.inside = true
	r.served = append(r.served, number)
	r.took = append(r.took, time.Since(r.released))
	return true
}

// leave comes before the unlock.
func (r *row) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside, r.released = false, time.Now()
}

// serve has the sides wait, one after the other, for a lock that holder has and gives back then; all are served, each woken
// by a message, and those of a fair lock in the order they came.
func (e *env) serve(t testing.TB, what string, l lock, holder side, waiters []side) {
	t.Helper()
	r := &row{inside: true}
	hold(t, holder, l, long)
	var all []later
	for i, s := range waiters {
		all = append(all, start(func() error { return r.section(s, l, i) }))
		if l.kind == "fair" {
			e.inQueue(t, l, i+1)
		}
	}
	e.queued(t, l, len(all))
	r.leave()
	free(t, holder, l)
	for i, waiter := range all {
		waiter.ok(t, fmt.Sprint("waiter ", i))
	}
	for i, took := range r.took {
		if _, java := waiters[r.served[i]].(*thread); java && l.kind == "write" && took > overdue {
			t.Logf("%s: a thread of Redisson missed its message, which Redisson gives to those who already wait, and looked after %v", what, took)
			continue
		}
		e.woke(t, what, took)
	}
	for i, n := range r.served {
		if l.kind == "fair" && n != i {
			t.Fatalf("waiter %d was served as number %d, of %v", n, i, r.served)
		}
	}
}

// mixed: waiters of both sides on one lock.
func mixed(t *testing.T, e *env, pair, kind string) {
	var waiters []side
	for range 4 {
		waiters = append(waiters, e.first(t, pair), e.secondSide(t, pair))
	}
	e.serve(t, pair+": "+kind+", eight waiters", e.lock(kind), e.first(t, pair), waiters)
}

// hundred: so many of two lockproxies and two JVMs in one queue.
func hundred(t *testing.T, e *env, _, kind string) {
	e.second.Lock()
	defer e.second.Unlock()
	another := e.jvm(t)
	var waiters []side
	for i := range 25 {
		waiters = append(waiters, e.party(t, ours), e.party(t, ours), e.party(t, beside), &thread{another, beside, fmt.Sprint("h", i)})
	}
	rand.Shuffle(len(waiters), func(i, j int) { waiters[i], waiters[j] = waiters[j], waiters[i] })
	e.serve(t, kind+", a hundred waiters", e.lock(kind), e.party(t, ours), waiters)
}

// givesUp: a waiter whose time is over, or whose client hangs up, is out of the queue then; those behind get the lock by messages.
func givesUp(t *testing.T, e *env, pair, kind string) {
	for range 3 {
		l, holder := e.lock(kind), e.first(t, pair)
		hold(t, holder, l, long)
		quitter, stays, last := e.secondSide(t, pair), e.secondSide(t, pair), e.first(t, pair)
		began := time.Now()
		quit := start(func() error {
			won, err := quitter.try(l, 1500*time.Millisecond, long)
			if won && err == nil {
				err = fmt.Errorf("%v: two hold it", l)
			}
			return err
		})
		e.inQueue(t, l, 1)
		n := 1
		if pair != bothJava {
			gone := e.party(t, ours).(*conn)
			lost := start(func() error { _, err := gone.lock(l, long); return err })
			e.inQueue(t, l, 2)
			must(t, gone.c.Close(), "hanging up")
			if r := <-lost.done; r.err == nil {
				t.Fatal("a connection that is closed got a lock")
			}
			e.inQueue(t, l, 1)
		}
		var got []later
		for _, s := range []side{stays, last} {
			got = append(got, start(func() error { _, err := s.lock(l, long); return err }))
			n++
			e.inQueue(t, l, n)
		}
		if at := quit.ok(t, "giving up"); at.Sub(began) > harness.Patience/2 {
			t.Errorf("1.5 s took %v", at.Sub(began))
		}
		e.inQueue(t, l, 2)
		time.Sleep(settling)
		for i, s := range []side{holder, stays} {
			released := time.Now()
			free(t, s, l)
			e.woke(t, pair+": fair, behind who gave up", got[i].ok(t, "who is next").Sub(released))
		}
		free(t, last, l)
	}
}

// ghosts: the waiters of a lockproxy that was killed block those behind them until nobody has heard of them for 10 s. Of
// Redisson's it would be five minutes.
func ghosts(t *testing.T, e *env, _, kind string) {
	const dead = 20
	p := e.proxy(t)
	var all []*queueOfGhosts
	for _, who := range [][]string{{ours}, {beside}, {beside, ours}, {ours, beside}} {
		if len(who) == 1 && e.forgets(kind, e.party(t, who[0])) {
			continue
		}
		q := &queueOfGhosts{l: e.lock(kind), holder: e.party(t, ours), who: who}
		// Redisson with nobody of lockproxy in the queue is told by nobody: it looks when the lease that it saw is over.
		hold(t, q.holder, q.l, 15*time.Second)
		for range dead {
			s := dial(t, p.Addr())
			q.lost = append(q.lost, start(func() error { _, err := s.lock(q.l, long); return err }))
		}
		e.inQueue(t, q.l, dead)
		for i, name := range who {
			s := e.party(t, name)
			q.behind = append(q.behind, start(func() error {
				if _, err := s.lock(q.l, long); err != nil {
					return err
				}
				return s.unlock(q.l)
			}))
			e.inQueue(t, q.l, dead+i+1)
		}
		all = append(all, q)
	}
	time.Sleep(4 * time.Second) // all have been refreshed
	killed := time.Now()
	p.Kill()
	for _, q := range all {
		free(t, q.holder, q.l)
		for _, lost := range q.lost {
			if r := <-lost.done; r.err == nil {
				t.Error("the dead got a lock")
			}
		}
	}
	for _, q := range all {
		for i, got := range q.behind {
			took := got.ok(t, "behind the dead").Sub(killed)
			if took > 20*time.Second {
				t.Errorf("%s waited for %v", q.who[i], took)
			}
			if i == 0 {
				e.measured(t, "fair: "+q.who[0]+" behind twenty of a lockproxy killed with -9"+q.and(), fmt.Sprintf("%.1f s", took.Seconds()))
			}
		}
	}
}

type queueOfGhosts struct {
	l            lock
	holder       side
	who          []string
	lost, behind []later
}

func (q *queueOfGhosts) and() string {
	if len(q.who) == 1 {
		return ""
	}
	return ", before " + q.who[1]
}
