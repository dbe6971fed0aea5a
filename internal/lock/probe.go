package lock

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// What a node can do is found out by doing it: a lock that nobody else knows is taken and given back there, by the scripts that all
// locks use, before the first lock is given, and again whenever the connection to the node, or the master, is another. On a cluster
// the node says before that which commands it has to publish with.

// probeLease is the lease of the probe's lock in ms. probeNever is a not-after that no clock reaches.
const (
	probeLease = "1000"
	probeNever = "9007199254740991"
)

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

// probe takes a lock and gives it back. cannot is what Redis refuses to do for want of a right or of a command; an err says that
// nothing is known.
func (m *Manager) probe(ctl *upstream.Control, name, verb string) (cannot string, err error) {
	owner := m.uuid + ":0"
	for _, c := range []call{
		{0, scripts.Acquire, plainKeys(name), []string{probeLease, owner, probeNever, "N", "", "0", "0", verb}},
		{0, scripts.Release, plainKeys(name), []string{owner, verb, probeNever, "A", "0", ""}},
	} {
		out, err := ints(evalOn(ctl, c))
		if line, lacks := lacking(err); lacks {
			return line, nil
		}
		if err != nil {
			return "", err
		}
		if out[0] != 1 {
			return "", errNotDone
		}
	}
	return "", nil
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
