package lock

import (
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/scripts"
)

// probeStep is one script of the probe, or without a script one command. least is the lowest code that it returns when it has done
// what it is for.
type probeStep struct {
	node.Call
	least int64
}

// tryOut is what the probe does with one kind of lock: a named owner takes it, with a fencing token where that is given, is looked
// at, renews it by the watchdog and by RENEW, and hands it on to another one, who gives it back. Then it is taken again, and freed
// by force. In the fair queue of a plain lock others wait meanwhile, come back to their places, and leave; one that is there
// no more is taken out.
type tryOut struct {
	m    *Manager
	site node.Site
	id   holdID
	verb string
}

// tryOutAttempt is the registration in a probe, and its attempt on a node of a quorum.
const tryOutAttempt = "probe"

// next is the hold of whoever gets the lock after the first owner.
func (t tryOut) next() holdID {
	t.id.owner = t.m.uuid + ":1"
	return t.id
}

func (t tryOut) steps() []probeStep {
	if t.site.Votes {
		return t.votes()
	}
	all := []probeStep{{t.acquire(t.id), 1}}
	if !t.id.kind.spec().rw {
		all = append(all, t.queue()...)
	}
	all = append(all, probeStep{t.look(), noCode}, probeStep{infoCall(0, t.id.key), noCode},
		probeStep{t.renew(), 1}, probeStep{t.extend(), 1},
		probeStep{handing(t.release(t.id), []node.Call{t.acquire(t.next())}, t.id.line(), "TS", t.verb), 1},
		probeStep{t.release(t.next()), 1}, probeStep{t.acquire(t.id), 1})
	if !t.id.kind.spec().rw {
		all = append(all, probeStep{node.Call{Keys: []string{queueKey(t.id.key)}, Args: []string{"RPUSH", "nobody"}}, 1})
	}
	all = append(all, probeStep{t.force(), 1})
	if t.site.PubSub != "" {
		for i, s := range all {
			if s.Script != nil {
				all[i].Call = withGuard(s.Call)
			}
		}
	}
	return all
}

// votes are the steps on a node of a quorum, where nothing is handed on.
func (t tryOut) votes() []probeStep {
	votes, fence := []string{t.id.votesKey()}, !t.id.kind.spec().shared
	vote := probeStep{asVote(t.acquire(t.id), t.id, tryOutAttempt, fence, ever), 1}
	return []probeStep{
		vote, {t.look(), noCode}, {infoCall(0, t.id.key), noCode},
		{node.Call{Script: scripts.Raise, Keys: []string{tokenKey(t.id.key)}, Args: []string{"1", ever, probeLease}}, 1},
		{around(t.renew(), scripts.StandRenew, votes, []string{"1", tryOutAttempt}), 1},
		{extending(t.extend(), t.id, tryOutAttempt), 1},
		{around(t.release(t.id), scripts.Retract, []string{t.id.votesKey(), t.id.watchKey()}, []string{tryOutAttempt, tryOutAttempt}), 1},
		vote, {t.force(), 1},
		vote, {around(t.release(t.id), scripts.Drop, votes, []string{"", tryOutAttempt}), 1},
	}
}

// acquire has a named owner take the lock.
func (t tryOut) acquire(id holdID) node.Call {
	n, keys, flags := id.kind.spec(), id.acquireKeys(), "NW"
	if n.rw {
		flags += "M"
	}
	if !n.shared && !t.site.Votes {
		flags, keys = flags+"F", append(keys, tokenKey(id.key))
	}
	args := []string{probeLease, id.field(), ever, flags}
	if !n.rw {
		args = append(args, t.verb)
	}
	args = append(append(args, tryOutAttempt, probeLease), id.rest()...)
	return node.Call{Script: n.acquire, Keys: append(keys, id.watchKey()), Args: args}
}

func (t tryOut) release(id holdID) node.Call {
	args := append([]string{id.field(), t.verb, ever, "AW", tryOutAttempt}, id.rest()...)
	return node.Call{Script: id.kind.spec().release, Keys: append(id.releaseKeys(), id.watchKey()), Args: args}
}

func (t tryOut) renew() node.Call {
	args := []string{probeLease, ever, "W", t.id.field(), tryOutAttempt}
	return node.Call{Script: t.id.kind.spec().renew, Keys: append(t.id.keys(), t.id.watchKey()), Args: args}
}

func (t tryOut) extend() node.Call {
	args := append([]string{probeLease, t.id.field(), ever, "KW", tryOutAttempt, tryOutAttempt}, t.id.rest()...)
	return node.Call{Script: t.id.kind.spec().extend, Keys: append(t.id.keys(), t.id.watchKey()), Args: args}
}

func (t tryOut) look() node.Call {
	return node.Call{Script: t.id.kind.spec().look, Keys: append(t.id.keys(), tokenKey(t.id.key)), Args: []string{t.id.field()}}
}

func (t tryOut) force() node.Call {
	if t.id.kind == Plain {
		return node.Call{Script: scripts.Force, Keys: plainKeys(t.id.key), Args: []string{t.verb, ever}}
	}
	return node.Call{Script: scripts.RWForce, Keys: []string{t.id.key, t.id.line().channel()}, Args: []string{t.verb, ever, "", readPrefix(t.id.key)}}
}

// queue has others come into the queue of a lock, the second before the first and the third between them, as those do who were
// taken out of it, and leave it.
func (t tryOut) queue() (all []probeStep) {
	waiters := []string{t.m.uuid + ":1", t.m.uuid + ":2", t.m.uuid + ":3"}
	for i, ticket := range []string{"0", "1", "2"} {
		all = append(all, probeStep{node.Call{Script: scripts.Acquire, Keys: plainKeys(t.id.key), Args: []string{
			probeLease, waiters[i], ever, "NE", t.verb, "", "0", t.m.fairWait(), ticket}}, 0})
	}
	all = append(all, probeStep{node.Call{Script: scripts.Refresh, Keys: plainKeys(t.id.key), Args: []string{ever, t.verb, t.m.fairWait(), waiters[1], "1"}}, 0})
	for _, waiter := range waiters {
		all = append(all, probeStep{node.Call{Script: scripts.Leave, Keys: plainKeys(t.id.key), Args: []string{ever, t.verb, waiter}}, 1})
	}
	return all
}
