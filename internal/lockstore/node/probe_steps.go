package node

import (
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/scripts"
)

// probeStep is one script of the probe, or without a script one command. least is the lowest code that it returns if it has succeeded.
type probeStep struct {
	Call
	least int64
}

// tryOut is what the probe does with one kind of lock: a named owner takes it, with a fencing token where that is given, is looked
// at, renews it by the watchdog and by RENEW, and hands it on to another one, who gives it back. Then it is taken again, and freed
// by force. In the fair queue of a plain lock others wait meanwhile, come back to their places, and leave; one that is there
// no more is taken out.
type tryOut struct {
	site Site
	id   lockstore.ID
	verb string
}

// tryOutAttempt is the registration in a probe, and its attempt on a node of a quorum.
const tryOutAttempt = "probe"

// next is the hold of whoever gets the lock after the first owner.
func (t tryOut) next() lockstore.ID {
	t.id.Owner = t.site.UUID + ":1"
	return t.id
}

func (t tryOut) steps() []probeStep {
	if t.site.Votes {
		return t.votes()
	}
	all := []probeStep{{t.acquire(t.id), 1}}
	if !t.id.Kind.Spec().RW {
		all = append(all, t.queue()...)
	}
	all = append(all, probeStep{Look(t.id, false), anyCode}, probeStep{Info(0, t.id.Key), anyCode},
		probeStep{t.renew(), 1}, probeStep{t.extend(), 1},
		probeStep{handing(t.release(t.id), []Call{t.acquire(t.next())}, t.id.Line(), "TS", t.verb), 1},
		probeStep{t.release(t.next()), 1}, probeStep{t.acquire(t.id), 1})
	if !t.id.Kind.Spec().RW {
		all = append(all, probeStep{Call{Keys: []string{lockstore.QueueKey(t.id.Key)}, Args: []string{"RPUSH", "nobody"}}, 1})
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
	all := []probeStep{{t.acquire(t.id), 1}, {t.release(t.id), 1}}
	if t.site.PubSub != "" {
		for i, s := range all {
			all[i].Call = s.Guarded()
		}
	}
	return all
}

// votes are the steps on a node of a quorum, where nothing is handed on.
func (t tryOut) votes() []probeStep {
	votes, fence := []string{t.id.VotesKey()}, !t.id.Kind.Spec().Shared
	vote := probeStep{AsVote(t.acquire(t.id), t.id, tryOutAttempt, fence, ever), 1}
	return []probeStep{
		vote, {Look(t.id, false), anyCode}, {Info(0, t.id.Key), anyCode},
		{Call{Script: scripts.Raise, Keys: []string{lockstore.TokenKey(t.id.Key)}, Args: []string{"1", ever, probeLease}}, 1},
		{around(t.renew(), scripts.StandRenew, votes, []string{"1", tryOutAttempt}), 1},
		{ExtendVote(t.extend(), t.id, tryOutAttempt), 1},
		{around(t.release(t.id), scripts.Retract, []string{t.id.VotesKey(), t.id.WatchKey()}, []string{tryOutAttempt, tryOutAttempt}), 1},
		vote, {t.force(), 1},
		vote, {around(t.release(t.id), scripts.Drop, votes, []string{"", tryOutAttempt}), 1},
	}
}

// acquire is the script by which a named owner takes the lock.
func (t tryOut) acquire(id lockstore.ID) Call {
	n, keys, flags := id.Kind.Spec(), id.AcquireKeys(), "NW"
	if n.RW {
		flags += "M"
	}
	if !n.Shared && !t.site.Votes {
		flags, keys = flags+"F", append(keys, lockstore.TokenKey(id.Key))
	}
	args := []string{probeLease, id.Field(), ever, flags}
	if !n.RW {
		args = append(args, t.verb)
	}
	args = append(append(args, tryOutAttempt, probeLease), id.Rest()...)
	return Call{Script: n.Acquire, Keys: append(keys, id.WatchKey()), Args: args}
}

func (t tryOut) release(id lockstore.ID) Call {
	args := append([]string{id.Field(), t.verb, ever, "AW", tryOutAttempt}, id.Rest()...)
	return Call{Script: id.Kind.Spec().Release, Keys: append(id.ReleaseKeys(), id.WatchKey()), Args: args}
}

func (t tryOut) renew() Call {
	args := []string{probeLease, ever, "W", t.id.Field(), tryOutAttempt}
	return Call{Script: t.id.Kind.Spec().Renew, Keys: append(t.id.Keys(), t.id.WatchKey()), Args: args}
}

func (t tryOut) extend() Call {
	args := append([]string{probeLease, t.id.Field(), ever, "KW", tryOutAttempt, tryOutAttempt}, t.id.Rest()...)
	return Call{Script: t.id.Kind.Spec().Extend, Keys: append(t.id.Keys(), t.id.WatchKey()), Args: args}
}

func (t tryOut) force() Call {
	f := lockstore.Forcing{Key: t.id.Key, Kind: t.id.Kind}
	return Steps{Publish: t.verb}.Force(f, ever)
}

// queue makes others join the fair queue of a lock, the second before the first and the third between them, as waiters do that
// were taken out of it, and leave it.
func (t tryOut) queue() (all []probeStep) {
	waiters := []string{t.site.UUID + ":1", t.site.UUID + ":2", t.site.UUID + ":3"}
	for i, ticket := range []string{"0", "1", "2"} {
		all = append(all, probeStep{Call{Script: scripts.Acquire, Keys: lockstore.PlainKeys(t.id.Key), Args: []string{
			probeLease, waiters[i], ever, "NE", t.verb, "", "0", t.site.Steps.FairWait, ticket}}, 0})
	}
	all = append(all, probeStep{Call{Script: scripts.Refresh, Keys: lockstore.PlainKeys(t.id.Key), Args: []string{ever, t.verb, t.site.Steps.FairWait, waiters[1], "1"}}, 0})
	for _, waiter := range waiters {
		all = append(all, probeStep{Call{Script: scripts.Leave, Keys: lockstore.PlainKeys(t.id.Key), Args: []string{ever, t.verb, waiter}}, 1})
	}
	return all
}
