package node

import (
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/scripts"
)

// probeStep is one script of the probe, or without a script one command. least is the lowest code that it returns if it
// has succeeded.
type probeStep struct {
	Call
	least int64
}

// tryOut is what the probe does with one kind of lock: a named owner takes it, with a fencing token where that is
// given, takes it once more, is looked at, renews it, and hands it on to a connection, whose hold the watchdog renews,
// and which gives it back. Then it is taken again, and freed by force. In the fair queue of a plain lock others wait
// meanwhile, come back to their places, and leave; one that is there no more is taken out.
type tryOut struct {
	site Site
	id   lockstore.ID
	verb string
}

// next is the connection that gets the lock after the first owner.
func (t tryOut) next() lockstore.ID {
	t.id.Owner = t.site.UUID + ":1"
	return t.id
}

// steps are those with which the scripts of this kind of lock are tried, on one Redis and on a cluster.
func (t tryOut) steps() []probeStep {
	if t.site.Votes {
		return t.votes()
	}
	one := lockstore.Counts{}.With(t.id.Kind, 1)
	named, conn := t.acquire(t.id, lockstore.Counts{}), t.acquire(t.next(), one)
	all := []probeStep{{t.scripts().Acquire(named, ever), 1}, {t.scripts().Acquire(named, ever), 1}}
	if t.id.Kind == lockstore.Plain {
		all = append(all, t.queue()...)
	}
	back := t.scripts().Release(&lockstore.Release{ID: t.id, Named: true}, ever)
	renewal := lockstore.Renewal{RW: t.id.Kind.Spec().RW,
		Holds: []lockstore.Renewed{{ID: t.next(), Counts: one, Lease: probeLease}}}
	all = append(all, probeStep{Look(t.id), anyCode}, probeStep{Info(0, t.id.Key, lockstore.AllOwners), anyCode},
		probeStep{Extend(lockstore.Extension{ID: t.id, Named: true, Lease: probeLease}, false, ever), 1},
		probeStep{handing(back, []Call{t.scripts().Acquire(conn, ever)}, t.id.Line(), "turn", t.verb), 1},
		probeStep{t.scripts().Acquire(conn, ever), 1}, // others may have had their turn
		probeStep{Renew(renewal, ever), 1},
		probeStep{t.scripts().Release(&lockstore.Release{ID: t.next(), Whole: true}, ever), 1},
		probeStep{t.scripts().Acquire(named, ever), 1})
	if t.id.Kind == lockstore.Plain {
		all = append(all,
			probeStep{Call{Keys: []string{lockstore.QueueKey(t.id.Key)}, Args: []string{"RPUSH", "nobody"}}, 1})
	}
	all = append(all, probeStep{t.force(), 1})
	if t.site.PubSub != "" {
		for i, s := range all {
			if s.Script != nil {
				all[i].Call = s.Call.Guarded()
			}
		}
	}
	return all
}

// brief is a lock that is taken and given back.
func (t tryOut) brief() []probeStep {
	all := []probeStep{
		{t.scripts().Acquire(t.acquire(t.id, lockstore.Counts{}), ever), 1},
		{t.scripts().Release(&lockstore.Release{ID: t.id, Named: true}, ever), 1},
	}
	if t.site.PubSub != "" {
		for i, s := range all {
			all[i].Call = s.Guarded()
		}
	}
	return all
}

// votes are the steps on a node of a quorum, where nothing is handed on.
func (t tryOut) votes() []probeStep {
	vote := probeStep{t.scripts().Vote([]*lockstore.Acquire{t.acquire(t.id, lockstore.Counts{})}, ever), 1}
	return []probeStep{
		vote, {Look(t.id), anyCode}, {Info(0, t.id.Key, lockstore.AllOwners), anyCode},
		{Raise(t.id, 1, ever), 1},
		{Extend(lockstore.Extension{ID: t.id, Named: true, Lease: probeLease}, false, ever), 1},
		{t.scripts().Release(&lockstore.Release{ID: t.id, Named: true}, ever), 1},
		vote, {t.force(), 1},
	}
}

// scripts makes the scripts of the probe, which publish with the verb that is tried.
func (t tryOut) scripts() Steps {
	return Steps{Publish: t.verb}
}

func (t tryOut) acquire(id lockstore.ID, counts lockstore.Counts) *lockstore.Acquire {
	return &lockstore.Acquire{ID: id, Counts: counts, Lease: probeLease, Fence: !id.Kind.Spec().Shared}
}

func (t tryOut) force() Call {
	return t.scripts().Force(lockstore.Forcing{Key: t.id.Key, Kind: t.id.Kind}, ever)
}

// queue makes others join the fair queue of a lock, the second before the first and the third between them, as waiters
// do that were taken out of it, and leave it.
func (t tryOut) queue() (all []probeStep) {
	waiters := []string{t.site.UUID + ":1", t.site.UUID + ":2", t.site.UUID + ":3"}
	for place, waiter := range waiters {
		id := t.id
		id.Owner = waiter
		a := &lockstore.Acquire{ID: id, Counts: lockstore.Counts{Writes: 1}, Lease: probeLease, Queues: true,
			Place: int64(place)}
		all = append(all, probeStep{t.scripts().Acquire(a, ever), 0})
	}
	q := lockstore.Queue{Key: t.id.Key,
		Places: []lockstore.Place{{ID: lockstore.ID{Key: t.id.Key, Owner: waiters[1]}, Place: 1}}}
	all = append(all, probeStep{t.scripts().Refresh(q, ever), 0})
	for _, waiter := range waiters {
		all = append(all, probeStep{Call{Script: scripts.Leave, Keys: lockstore.QueueKeys(t.id.Key),
			Args: []string{ever, t.verb, waiter}}, 1})
	}
	return all
}
