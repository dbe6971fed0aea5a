package node

import (
	"context"
	"errors"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// What a node can do is found out by doing it: a lock of each kind, which nobody else knows, is taken and given back
// there by the scripts that all locks use, before the first lock is given, again whenever the connection to the node, or
// the master, is another, and every askedEvery: Redis may be full, have become a replica, or be unable to save. On a
// cluster the node says before that which commands it has to publish with.

// errProbe says that a lock could not be taken for a try, and not why.
var errProbe = errors.New("a lock that was taken for a try did not behave as one")

// probeLease is the lease of the probe's locks in ms.
const probeLease = 1000

// probeNames is how many names are tried to find one in a slot of the node: enough for every slot.
const probeNames = 20 * 16384

// probeName is the name of a lock of this proxy's own, of the form that no client's can have, that is at the node; "":
// there is none.
func (s Site) probeName() string {
	for i := range probeNames {
		if name := lockstore.ReservedPrefix + "probe:" + s.UUID + ":" + strconv.Itoa(i); s.Has == nil || s.Has(name) {
			return name
		}
	}
	return ""
}

// probeStep is one script of the probe, or without a script one command, and the code that it returns if it has
// succeeded.
type probeStep struct {
	Call
	code int64
}

// ends lets a key that a step has made end by itself, as Redisson's queues and tokens do not: Redis may refuse all that
// follows, and this proxy be killed before it can tidy up.
func ends(key string) probeStep {
	return probeStep{Call{Keys: []string{key}, Args: []string{"PEXPIRE", "60000"}}, 1}
}

// trial is what the probe does with one kind of lock: a named owner takes it, with a fencing token where that is given,
// has it renewed in both ways, and gives it back. Of the fair queue of a plain lock the release has to take somebody out
// who is there no more, and to call another; of two readers the first shortens nothing for the second;
// where one may have the lock a second is refused.
func (s Site) trial(id lockstore.ID, verb string) (all []probeStep) {
	by, kind := Steps{Publish: verb}, id.Kind.Spec()
	token, queue := lockstore.TokenKey(id.Key), lockstore.QueueKey(id.Key)
	a := &lockstore.Acquire{ID: id, Lease: probeLease, Limit: 1, Fence: !kind.Shared && id.Kind != lockstore.Limit}
	release := probeStep{by.Release(&lockstore.Release{ID: id, Named: true}, ever), lockstore.Freed}
	other := *a
	other.ID.Owner, other.Fence, other.Queues = s.UUID+":1", false, id.Kind == lockstore.Plain
	second := probeStep{by.Acquire(&other, ever), lockstore.Granted}
	if s.Votes {
		all = append(all, probeStep{by.Vote([]*lockstore.Acquire{a}, ever), lockstore.Granted},
			probeStep{Raise(id, 1, ever), lockstore.Granted}, ends(token))
	} else {
		all = append(all, probeStep{by.Acquire(a, ever), lockstore.Granted})
		if a.Fence {
			all = append(all, ends(token))
		}
		renewal := lockstore.Renewal{Kind: id.Hold().Kind, Holds: []lockstore.Renewed{
			{ID: id, Counts: lockstore.Counts{}.With(id.Kind, 1), Lease: probeLease}}}
		all = append(all, probeStep{Renew(renewal, ever), lockstore.StillThere})
		switch id.Kind {
		case lockstore.Plain:
			second.code = lockstore.Refused
			all = append(all, probeStep{Call{Keys: []string{queue}, Args: []string{"RPUSH", "nobody"}}, 1}, ends(queue),
				second, ends(queue), ends(lockstore.TimeoutKey(id.Key)))
		case lockstore.Limit:
			second.code = lockstore.Refused
			fallthrough
		case lockstore.Read:
			all = append(all, second)
		}
	}
	all = append(all, probeStep{Extend(lockstore.Extension{ID: id, Lease: probeLease}, false, ever), lockstore.LeaseSet},
		release)
	if kind.Shared && !s.Votes {
		all = append(all, probeStep{by.Release(&lockstore.Release{ID: other.ID, Named: true}, ever), lockstore.Freed})
	}
	if s.PubSub != "" {
		for i, step := range all {
			if step.Script != nil {
				all[i].Call = step.Guarded()
			}
		}
	}
	return all
}

// probe takes a lock of each kind and gives it back, all in one write, and leaves nothing behind. cannot is Redis'
// refusal because a right or a command is missing; an err says why else no lock could be had.
func (s Site) probe(name, verb string) (cannot string, err error) {
	client, err := s.Node.Control.Client(0)
	if err != nil {
		return "", err
	}
	id := lockstore.ID{Key: name, Owner: s.UUID + ":0", Kind: lockstore.Read}
	another := id
	another.Owner = s.UUID + ":1"
	left := []string{name, id.ReadHold(1), another.ReadHold(1), lockstore.TokenKey(name), lockstore.QueueKey(name),
		lockstore.TimeoutKey(name), lockstore.PlacesKey(name), lockstore.Prefixed("lockproxy_fair", name)}
	var steps []probeStep
	for _, kind := range lockstore.Kinds {
		if s.Votes && kind == lockstore.Limit {
			continue // see lockstore.Rules
		}
		steps = append(steps, s.trial(id.As(kind), verb)...)
	}
	replies := sendSteps(client, steps, left, "EVALSHA")
	for _, reply := range replies {
		if unknownScript(reply.Error()) {
			replies = sendSteps(client, steps, left, "EVAL")
			break
		}
	}
	for i, reply := range replies {
		err := Outcome(reply.Error())
		if line, lacks := lacking(err); lacks {
			if i < len(steps) && steps[i].Script != nil { // Redis before 7.2 does not say which command it was
				line += " (in the script " + steps[i].Script.Name + ")"
			}
			return line, nil
		}
		if err != nil {
			return "", err
		}
		if i < len(steps) {
			if out, err := steps[i].Ints(reply.ToMessage()); err != nil || out[0] != steps[i].code {
				return "", errProbe
			}
		}
	}
	return "", nil
}

// sendSteps runs the steps one after the other in one write, and then deletes the keys that are left, so that none
// remains if a step is refused, or if this proxy ends meanwhile.
func sendSteps(client rueidis.Client, steps []probeStep, left []string, by string) []rueidis.RedisResult {
	all := make(rueidis.Commands, 0, len(steps)+1)
	for _, s := range steps {
		switch {
		case s.Script == nil:
			all = append(all, client.B().Arbitrary(s.Args[0]).Keys(s.Keys...).Args(s.Args[1:]...).Build())
		case by == "EVAL":
			all = append(all, s.build(client, by, s.Script.Source))
		default:
			all = append(all, s.build(client, by, s.Script.SHA))
		}
	}
	all = append(all, client.B().Arbitrary("DEL").Keys(left...).Build())
	return client.DoMulti(context.Background(), all...)
}
