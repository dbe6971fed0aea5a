package lock

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// What a node can do is found out by doing it: locks that nobody else knows are taken, entered, waited for, renewed and given back
// there, by the scripts that all locks use, before the first lock is given, and again whenever the connection to the node, or the
// master, is another. On a cluster the node says before that which commands it has to publish with.

// probeLease is the lease of the probe's locks in ms, and what its fencing token lasts at most.
const probeLease = "1000"

// probeName is the name of a lock of this proxy's own, of the form that no client's can have. at says whether a name is one of the
// node's; "": none is.
func (m *Manager) probeName(at func(name string) bool) string {
	for i := range 20 * cluster.Slots {
		if name := reservedPrefix + "probe:" + m.uuid + ":" + strconv.Itoa(i); at == nil || at(name) {
			return name
		}
	}
	return ""
}

// probeStep is one script of the probe. least is the lowest code that it returns when it has done what it is for.
type probeStep struct {
	call
	least int64
}

// probe takes a lock of each kind and gives it back, all in one write, and leaves nothing behind. cannot is what Redis refuses to do
// for want of a right or of a command; an err says that nothing is known.
func (m *Manager) probe(ctl *upstream.Control, name, verb string) (cannot string, err error) {
	client, err := ctl.Client(0)
	if err != nil {
		return "", err
	}
	var steps []probeStep
	var left []string
	for _, kind := range []Kind{Plain, Read, Write} {
		id := holdID{key: name, owner: m.uuid + ":0", kind: kind}
		steps, left = append(steps, m.stepsOf(id, verb)...), append(left, id.watchKey(), id.votesKey())
	}
	left = append(left, name, tokenKey(name), queueKey(name), prefixed("redisson_lock_timeout", name), prefixed("lockproxy_fair", name),
		holdID{key: name, owner: m.uuid + ":0", kind: Read}.keys()[1]+":1")
	replies := sendSteps(client, steps, left, "EVALSHA")
	for _, reply := range replies {
		if unknownScript(reply.Error()) {
			replies = sendSteps(client, steps, left, "EVAL")
			break
		}
	}
	for i, reply := range replies {
		err := outcome(reply.Error())
		if line, lacks := lacking(err); lacks {
			return line, nil
		}
		if err != nil {
			return "", err
		}
		if i < len(steps) && codeOf(reply) < steps[i].least {
			return "", errNotDone
		}
	}
	return "", nil
}

// sendSteps runs the steps one after the other in one write, and then deletes the keys that are left, so that none is where a step
// was refused, or nobody is here any more to hear of it.
func sendSteps(client rueidis.Client, steps []probeStep, left []string, by string) []rueidis.RedisResult {
	all := make(rueidis.Commands, 0, len(steps)+1)
	for _, s := range steps {
		body := s.script.SHA
		if by == "EVAL" {
			body = s.script.Source
		}
		all = append(all, s.build(client, by, body))
	}
	all = append(all, client.B().Arbitrary("DEL").Keys(left[0]).Args(left[1:]...).Build())
	return client.DoMulti(context.Background(), all...)
}

// codeOf is the first number of a script's reply.
func codeOf(reply rueidis.RedisResult) int64 {
	if code, err := reply.AsInt64(); err == nil {
		return code
	}
	parts, err := reply.AsIntSlice()
	if err != nil || len(parts) == 0 {
		return noCode
	}
	return parts[0]
}

// stepsOf are the steps of one kind of lock: a named owner takes it, with a fencing token where that is given, renews it by the
// watchdog and by RENEW, and gives it back; of a plain lock somebody waits in the fair queue meanwhile.
func (m *Manager) stepsOf(id holdID, verb string) []probeStep {
	n, registration, flags := id.kind.nature(), "probe", "NW"
	keys := id.acquireKeys()
	if n.rw {
		flags += "M"
	}
	if !n.shared && m.quorum == nil {
		flags, keys = flags+"F", append(keys, tokenKey(id.key))
	}
	taken := []string{probeLease, id.field(), ever, flags, registration, "0", probeLease}
	given := []string{id.field(), verb, ever, "AW", "0", registration}
	renewed := []string{probeLease, ever, "W", id.field(), registration}
	set := []string{probeLease, id.field(), ever, "KW", registration, registration}
	if n.rw {
		taken, given, set = append(taken, id.rest()...), append(given, id.rest()...), append(set, id.rest()...)
	} else {
		taken = append(taken, verb)
	}
	acquire := call{0, n.acquire, append(keys, id.watchKey()), taken}
	renew := call{0, n.renew, append(id.keys(), id.watchKey()), renewed}
	extend := call{0, n.extend, append(id.keys(), id.watchKey()), set}
	release := call{0, n.release, append(id.releaseKeys(), id.watchKey()), given}
	if m.quorum != nil {
		votes, attempt := []string{id.votesKey()}, registration
		return []probeStep{
			{acquire.asVote(id, attempt, !n.shared, ever), 1},
			{renew.around(scripts.StandRenew, votes, []string{"1", attempt}), 1},
			{extend.extending(id, attempt), 1},
			{release.around(scripts.Drop, votes, []string{"", attempt}), 1},
		}
	}
	all := []probeStep{{acquire, 1}}
	if !n.rw {
		all = append(all, m.fairSteps(id, verb)...)
	}
	all = append(all, probeStep{renew, 1}, probeStep{extend, 1}, probeStep{release, 1})
	if m.fleet != nil {
		for i, s := range all {
			all[i].call = s.withGuard()
		}
	}
	return all
}

// fairSteps have another owner come into the queue of a lock, stay in it, and leave it.
func (m *Manager) fairSteps(id holdID, verb string) []probeStep {
	waiter := m.uuid + ":1"
	return []probeStep{
		{call{0, scripts.Acquire, plainKeys(id.key), []string{probeLease, waiter, ever, "NE", "", "0", "0", verb, m.fairWait(), "0"}}, 0},
		{call{0, scripts.Refresh, plainKeys(id.key), []string{ever, verb, m.fairWait(), waiter, "1"}}, 0},
		{call{0, scripts.Leave, plainKeys(id.key), []string{ever, verb, waiter}}, 1},
	}
}

// lacking is Redis' line if it refused something for want of a right or of a command.
func lacking(err error) (line string, yes bool) {
	var refusal *upstream.ReplyError
	if !errors.As(err, &refusal) {
		return "", false
	}
	return refusal.Line, strings.HasPrefix(refusal.Line, "NOPERM ") || strings.Contains(strings.ToLower(refusal.Line), "unknown redis command")
}

// aboutKeys says whether a refusal is about keys, or channels, rather than about a command.
func aboutKeys(line string) bool {
	return strings.Contains(line, " key") || strings.Contains(line, " channel")
}

// verbAt is with what the scripts publish at a node of a cluster: as is wished, as far as the node has the commands.
func verbAt(ctl *upstream.Control, wish PubSub) (string, error) {
	client, err := ctl.Client(0)
	if err != nil {
		return "", err
	}
	known, err := client.Do(context.Background(), client.B().Arbitrary("EVAL").Args(scripts.Publishes.Source, "0", "SPUBLISH", "PUBLISH").Build()).AsIntSlice()
	if err != nil {
		return "", outcome(err)
	}
	sharded, classic := known[0] == 1, known[1] == 1
	switch {
	case !sharded:
		return PubSubClassic.verb(), nil
	case !classic:
		return PubSubSharded.verb(), nil
	}
	return wish.verb(), nil
}
