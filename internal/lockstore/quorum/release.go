package quorum

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/retry"
)

// insist asks a node to take something back, until it has answered, or giveUp, when the lease is over there.
func (q *store) insist(n *quorumNode, giveUp time.Time, build func(notAfter string) node.Call) result {
	for failures := retry.Insist(); ; {
		until := q.until(0)
		r := q.ask(n, until, build)
		if r.err == nil || time.Now().After(giveUp) || n.calls.Load() >= manyCalls {
			return r
		}
		pause := failures.Next()
		if lockstore.Unknown(r.err) {
			pause = max(pause, time.Until(until)+node.ClockTolerance) // the lost request must not be done after the next one
		}
		if !q.host.Sleep(context.Background(), pause) {
			return r
		}
	}
}

// Release gives back one hold, or all: one of several is only counted here, the last one is dropped on all nodes. With an attempt
// only what that has is given back. A named owner is answered when every node has answered, or can only act if it is known that
// the owner has not come back: it may take the lock through another proxy then.
func (q *store) Release(_ context.Context, r *lockstore.Release) (done lockstore.Released, err error) {
	if !r.Named && !r.Frees() {
		done.Left = r.Count - 1
		return done, nil
	}
	whole := *r
	whole.All, whole.Waiters = true, nil
	d := q.newDropping(&whole, q.all, r.Named && q.wellEnough())
	defer close(d.answered)
	all := d.ask(func(all []result) bool { return !r.Named && q.done(all) })
	if r.Named && r.Attempt == "" {
		q.settle(d, all)
	}
	t, ok := q.tallyOf(all), false
	if r.Attempt != "" {
		done.Code, done.Left, ok = t.Retracted()
	} else {
		done.Code, done.Left, ok = t.Freed()
	}
	if !ok {
		done.RunsOut = true
		err = q.noMajority(all, len(t.Said), "the lock is no longer renewed and runs out; UNLOCK may be said again")
	}
	return done, err
}

// settle waits until a named owner's UNLOCK can be answered. No node is to do the UNLOCK after that, since it would end what the owner takes
// next. And no vote for a LOCK before the UNLOCK, from another proxy, is to come to a node after the UNLOCK has passed it: together with the
// nodes that could not be asked such nodes may be a majority, and that proxy would renew the lock for ever. The nodes are asked once more when
// there can be no such vote any more.
func (q *store) settle(d *dropping, all []result) {
	end, again := time.Now(), q.tallyOf(all).Overtaken()
	if mayStillCome(all, len(q.all)) {
		end = d.until.Add(node.ClockTolerance)
	}
	if again {
		end = lockstore.Later(end, q.until(0).Add(node.ClockTolerance))
	}
	if time.Now().Before(end) {
		q.host.Sleep(context.Background(), time.Until(end))
	}
	if !again {
		return
	}
	var passed []*quorumNode
	for _, r := range all {
		if r.code() != noCode {
			passed = append(passed, r.node)
		}
	}
	second := q.newDropping(d.r, passed, false)
	second.only = onlyThose(q.tallyOf(all).Attempts())
	defer close(second.answered)
	if mayStillCome(second.ask(everybody[result]), len(passed)) {
		q.host.Sleep(context.Background(), time.Until(second.until)+node.ClockTolerance)
	}
}

// onlyThose has a node end a hold only if no other attempts count on it: the owner, who may not have waited for the answer, has taken the lock anew
// then. "": they are not told apart.
func onlyThose(attempts []int64) string {
	if slices.Contains(attempts, 0) {
		return ""
	}
	only := "="
	for _, a := range attempts {
		only += strconv.FormatInt(a, 10) + "="
	}
	return only
}

// mayStillCome says whether one of so many nodes may still do what it was sent, by what those have answered that did in time.
func mayStillCome(all []result, nodes int) bool {
	return len(all) < nodes || slices.ContainsFunc(all, func(r result) bool { return lockstore.Unknown(r.err) })
}

// dropping is one release on some nodes, or all. It goes on after it was answered, until each node has done it or the lease is over there. It must not
// end a hold that its owner takes meanwhile. An owner without a name comes back through this proxy only, where its next step on a node waits
// for this one. An owner with a name may come back through another proxy: after the first request, and where that is not waited for, nodes are
// told when the release was asked for, and keep what the owner was given since.
type dropping struct {
	q            *store
	r            *lockstore.Release
	until        time.Time
	skipTroubled bool // a node that did not answer what it was asked last is sent the release, but not waited for
	places       map[*quorumNode]place
	only         string        // of the second round: see onlyThose
	answered     chan struct{} // closed when the owner may hear that the hold is given back
}

// place is where a release is among the steps for a hold on one node: what store.begin returns.
type place struct{ before, mine *step }

// newDropping takes the release's place on each node at once: a goroutine that begins late, on a busy machine, would drop what the owner,
// who has heard the answer of the other nodes, has taken since.
func (q *store) newDropping(r *lockstore.Release, nodes []*quorumNode, skipTroubled bool) *dropping {
	d := &dropping{q: q, r: r, until: q.until(0), skipTroubled: skipTroubled, places: map[*quorumNode]place{}, answered: make(chan struct{})}
	for _, n := range nodes {
		before, mine := q.begin(n, r, n.earliest(), d.answered)
		d.places[n] = place{before, mine}
	}
	return d
}

// ask is gather for its nodes.
func (d *dropping) ask(enough func([]result) bool) []result {
	answers := make(chan result, len(d.places))
	for n := range d.places {
		d.q.host.Background(func() { answers <- d.from(n) })
	}
	return collect(answers, len(d.places), d.until, enough)
}

// from gives the hold back on one node, after what is under way for it there.
func (d *dropping) from(n *quorumNode) result {
	q := d.q
	before, mine := d.places[n].before, d.places[n].mine
	for mine == nil { // an earlier release is under way, and does this one, too
		timer := time.NewTimer(time.Until(d.until))
		select {
		case <-before.done:
			timer.Stop()
		case <-timer.C:
			return unasked(n)
		}
		if code := before.said.code(); before.said.err != nil || code != lockstore.NotHeld && code != lockstore.StillHeld {
			return before.said
		}
		// It may have left the hold because that was taken later, or because other attempts counted on it. Now it is to be given back all the same.
		if before, mine = q.begin(n, d.r, n.earliest(), d.answered); before == nil && mine == nil {
			return unasked(n)
		}
	}
	waits, answer := !d.skipTroubled || !n.troubled(), make(chan result, 1)
	q.host.Background(func() {
		defer q.end(n, d.r.ID, mine)
		if before != nil {
			<-before.done
		}
		mine.said = d.step(n, mine, waits, answer)
	})
	if !waits {
		return unasked(n) // as if it had not been asked; the step goes on in the background
	}
	return <-answer
}

// step asks one node. The first outcome is sent to answer, the last one is returned. waits says that the verb waits for the first one.
func (d *dropping) step(n *quorumNode, mine *step, waits bool, answer chan<- result) result {
	q, named := d.q, d.r.Named
	said, until := unasked(n), d.until
	if !named || waits && time.Now().Before(until) {
		if !named {
			until = lockstore.Later(until, q.until(0))
		}
		said = q.ask(n, until, func(notAfter string) node.Call {
			if d.only != "" {
				return q.steps.Drop(d.r, d.only, notAfter)
			}
			return q.steps.Retract(d.r, notAfter)
		})
	}
	answer <- said
	if wants, _ := q.askedFor(mine); said.err == nil && wants == d.r {
		return said
	}
	if lockstore.Unknown(said.err) {
		q.host.Sleep(context.Background(), time.Until(until)+node.ClockTolerance) // after that it is not done any more
	}
	for {
		r, asked := q.askedFor(mine)
		said = q.insist(n, r.GiveUp, func(notAfter string) node.Call {
			if d.only != "" {
				return q.steps.Drop(r, d.only, notAfter)
			}
			if named && r.Attempt == "" {
				return q.steps.Drop(r, strconv.FormatInt(asked, 10), notAfter)
			}
			return q.steps.Retract(r, notAfter)
		})
		if wants, last := q.askedFor(mine); said.err != nil || last == asked && wants == r {
			return said
		}
	}
}
