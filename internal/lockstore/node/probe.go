package node

import (
	"context"
	"errors"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// What a node can do is found out by doing it: locks that nobody else knows are taken, entered, waited for, renewed and
// given back there, by the scripts that all locks use, before the first lock is given, and again whenever the
// connection to the node, or the master, is another. What else may keep Redis from giving a lock (it is full, has
// become a replica, cannot save) is found out by one plain lock that is taken and given back every askedEvery. On a
// cluster the node says before that which commands it has to publish with.

// errProbe says that a lock could not be taken for a try, and not why.
var errProbe = errors.New("a lock that was taken for a try did not behave as one")

// anyCode is below all codes.
const anyCode = -99

// probeLease is the lease of the probe's locks in ms, and what its fencing token lasts at most.
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

// probe takes a lock of each kind and gives it back, all in one write, and leaves nothing behind; with brief it does no
// more than take a plain one and give it back. cannot is Redis' refusal because a right or a command is missing; an err
// says why else no lock could be had.
func (s Site) probe(name, verb string, brief bool) (cannot string, err error) {
	client, err := s.Node.Control.Client(0)
	if err != nil {
		return "", err
	}
	var steps []probeStep
	left := []string{name}
	for _, kind := range lockstore.Kinds {
		t := tryOut{site: s, id: lockstore.ID{Key: name, Owner: s.UUID + ":0", Kind: kind}, verb: verb}
		if !brief {
			steps = append(steps, t.steps()...)
		} else if kind == lockstore.Plain {
			steps = t.brief()
		}
		left = append(left, t.id.ReadHold(1), t.next().ReadHold(1))
	}
	left = append(left, lockstore.TokenKey(name), lockstore.QueueKey(name),
		lockstore.Prefixed("redisson_lock_timeout", name), lockstore.Prefixed("lockproxy_fair", name))
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
			return line, nil
		}
		if err != nil {
			return "", err
		}
		if i < len(steps) && codeOf(reply) < steps[i].least {
			return "", errProbe
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
	all = append(all, client.B().Arbitrary("DEL").Keys(left[0]).Args(left[1:]...).Build())
	return client.DoMulti(context.Background(), all...)
}

// codeOf is the first number of a script's reply.
func codeOf(reply rueidis.RedisResult) int64 {
	message, err := reply.ToMessage()
	if err != nil {
		return anyCode
	}
	out, err := intsIn(message)
	if err != nil || len(out) == 0 {
		return anyCode
	}
	return out[0]
}
