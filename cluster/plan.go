package cluster

import (
	"bytes"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Command is one command of a client. It must stay as it is until its Plan is done.
type Command struct {
	Raw   []byte   // multibulk, as it is to be sent
	Args  [][]byte // its words
	Keys  []int    // which of Args are keys
	Facts *Facts   // nil: nothing is known of it
}

// unlistedCommand is a command that COMMAND does not list.
var unlistedCommand = &Facts{Script: true}

const noSlot = -1

// Plan says how a Command is executed: which nodes get what, and how their replies become one. It is made without
// the topology, which is asked when the plan is carried out.
type Plan struct {
	// Set by Executor.Do, and valid until the next Set. Reply is what the client is to get; with Err there is none: a
	// *upstream.NotSentError says that nothing was done (but by other parts of a split command, or on other nodes), a
	// *upstream.LostError that it is unknown, a *upstream.ReplyError that Redis refuses the executor's identity.
	Reply  []byte
	Pieces [][]byte // of a long reply; see InPieces
	Err    error

	stream   upstream.Sink
	inPieces bool

	cmd   Command
	kind  planKind
	units []unit
	one   [1]unit // units of a plan that is not split, without another allocation
	whole *unit   // of a plan by node, or of SCAN: its wait for a topology in which no slot is without a master
	merge bool    // the replies of the units become one
	done  bool

	// Of a SCAN: where it is, and how many masters it goes over.
	at      scanPosition
	masters int
}

// planKind is where a plan's units go.
type planKind uint8

const (
	byKeys   planKind = iota // to the masters of its keys' slots
	atHome                   // to the executor's home
	byNode                   // to all masters, or all nodes: the units are made when its turn comes
	byCursor                 // SCAN, from one master to the next: see scan.go
)

// joins says that a plan may be under way together with those before it, which are of that kind. Those that go home
// keep their order in one write.
func (p *Plan) joins(kind planKind) bool { return p.kind == kind && kind <= atHome }

// unit is what one node gets of a plan.
type unit struct {
	plan     *Plan
	raw      []byte
	slot     int   // noSlot: at fixed, or anywhere
	keys     []int // of plan.cmd.Keys, which are this unit's; nil: all
	fixed    *Node // it can go to no other node
	optional bool  // fixed may be left out: a replica, or any of a Partial command

	to  *Node // where a redirect says; nil: to the slot's owner
	ask bool  // ASKING is sent first

	attempts
	outcome
}

// attempts count how often a unit was sent, and when it may be sent again.
type attempts struct {
	followed int // redirects, one after the other
	repeats  int // see mostRepeats
	passed   int // nodes that a unit which goes home has passed over: see failure.pass
	failures retry.Backoff
	ready    time.Time // not to be sent before; zero: it may be sent at once
	until    time.Time // is not tried again after; zero: it has not been tried again yet
}

// outcome is the result of a unit.
type outcome struct {
	reply  []byte
	pieces [][]byte // in place of reply: a long one
	begun  bool     // the reply, or a part of it, has been passed on
	err    error
	done   bool
}

// later lets it be tried again after a pause, which grows from first; false: its time, of so long in all, is up.
func (t *attempts) later(first, most time.Duration) bool {
	now := time.Now()
	if t.until.IsZero() {
		t.until = now.Add(most)
	}
	t.failures.First, t.failures.Most = first, 200*time.Millisecond
	t.ready = now.Add(t.failures.Next())
	return t.ready.Before(t.until)
}

// NewPlan makes the plan of a command.
func NewPlan(cmd Command) *Plan {
	p := &Plan{}
	p.Set(cmd)
	return p
}

// Set makes p the plan of a command, whatever it was before.
func (p *Plan) Set(cmd Command) {
	*p = Plan{cmd: cmd}
	if p.cmd.Facts == nil {
		p.cmd.Facts = unlistedCommand
	}
	f := p.cmd.Facts
	switch {
	case len(cmd.Keys) > 0:
		p.bySlots()
	case f.Name == "scan":
		p.planScan()
	case f.Request == AllNodes, f.Request == AllShards:
		p.kind, p.whole, p.merge = byNode, &unit{plan: p}, true
	default:
		p.kind = atHome
		p.single(noSlot)
	}
}

// single has one unit, the command as it is.
func (p *Plan) single(slot int) {
	p.one[0] = unit{plan: p, raw: p.cmd.Raw, slot: slot}
	p.units = p.one[:]
}

// bySlots plans a command by its keys. One whose keys are in several slots is split, or refused in Redis' words:
// Redis wants one slot in a command even where one node has them all.
func (p *Plan) bySlots() {
	args, keys := p.cmd.Args, p.cmd.Keys
	slot := Slot(args[keys[0]])
	if !slices.ContainsFunc(keys, func(k int) bool { return Slot(args[k]) != slot }) {
		p.single(slot)
		return
	}
	step := keys[1] - keys[0]
	switch {
	case p.cmd.Facts.Request != MultiShard, !evenly(keys, step): // or COMMAND has given odd places for keys
		p.answer(commandtable.CrossSlot)
	case (len(args)-keys[0])%step != 0, keys[0]+len(keys)*step > len(args):
		p.answer("ERR wrong number of arguments for '" + p.cmd.Facts.Name + "' command")
	default:
		p.split(step)
	}
}

// split makes a unit for each slot of the keys, each of which begins so many words.
func (p *Plan) split(step int) {
	args, keys := p.cmd.Args, p.cmd.Keys
	bySlot := make(map[int]int, len(keys)) // slot → index of its unit
	unitOf := make([]int, len(keys))
	for i, k := range keys {
		slot := Slot(args[k])
		at, known := bySlot[slot]
		if !known {
			at = len(bySlot)
			bySlot[slot] = at
		}
		unitOf[i] = at
	}
	p.units = make([]unit, len(bySlot))
	for i, at := range unitOf {
		p.units[at].keys = append(p.units[at].keys, i)
	}
	var words [][]byte
	for slot, at := range bySlot {
		u := &p.units[at]
		u.plan, u.slot = p, slot
		words = append(words[:0], args[:keys[0]]...)
		for _, i := range u.keys {
			words = append(words, args[keys[i]:keys[i]+step]...)
		}
		u.raw = resp.Command(words)
	}
	p.merge = true
}

// evenly says that each key is step words behind the one before.
func evenly(keys []int, step int) bool {
	for i, k := range keys {
		if k != keys[0]+i*step {
			return false
		}
	}
	return step > 0
}

// answer ends the plan before it is sent.
func (p *Plan) answer(line string) {
	p.Reply = resp.AppendError(nil, line)
	p.done = true
}

// only is the unit of a plan that one node answers; nil: there are several, or none.
func (p *Plan) only() *unit {
	if p.merge || len(p.units) != 1 {
		return nil
	}
	return &p.units[0]
}

// readOnly says that the command changes nothing.
func (p *Plan) readOnly() bool { return p.cmd.Facts.ReadOnly }

// repeatable says that the command may be sent again when its reply was lost.
func (p *Plan) repeatable() bool { return p.readOnly() && !p.cmd.Facts.Script }

// fanOut makes the units of a plan by node, and keeps them up with the topology: a node that has come gets one,
// one that has left, or is a replica now, is not waited for, and what it said does not count. A Partial command
// leaves out nodes in trouble.
func (p *Plan) fanOut(s *Snapshot) {
	nodes, partial := s.Masters, p.cmd.Facts.Partial
	if p.cmd.Facts.Request == AllNodes {
		nodes = s.All()
	}
	before := p.units
	p.units = make([]unit, 0, len(nodes))
	for i, n := range nodes {
		u := unit{plan: p, raw: p.cmd.Raw, slot: noSlot, fixed: n}
		if at := slices.IndexFunc(before, func(b unit) bool { return b.fixed == n }); at >= 0 {
			u = before[at]
		}
		u.optional = partial || i >= len(s.Masters)
		if u.done || !partial || !s.passable(n) {
			p.units = append(p.units, u)
		}
	}
}

// NoConnection says that there was no connection for what ended with err: a Budget allowed none, or a node let the
// user in no more.
func NoConnection(err error) bool { return upstream.IsFull(err) || isRefusal(err) }

// Unsent says that there was no connection for any part of a plan that is done: no node has run anything of it. Err
// alone says less: other parts may have run.
func (p *Plan) Unsent() bool {
	ran := func(u unit) bool { return !NoConnection(u.err) }
	return NoConnection(p.Err) && !slices.ContainsFunc(p.units, ran)
}

// Resume readies a plan for which there was NoConnection for another Do, which sends the parts that were not sent
// and no other. The reply is not streamed then. It changes no other plan.
func (p *Plan) Resume() {
	if !NoConnection(p.Err) {
		return
	}
	p.Err, p.stream, p.done = nil, nil, false
	if p.whole != nil {
		p.whole.forget()
	}
	for i := range p.units {
		if u := &p.units[i]; NoConnection(u.err) {
			u.forget()
		}
	}
}

// forget readies a unit that was not sent as if nothing had been tried.
func (u *unit) forget() { u.attempts, u.outcome, u.to, u.ask = attempts{}, outcome{}, nil, false }

// count is how many keys the unit has.
func (u *unit) count() int {
	if u.keys != nil {
		return len(u.keys)
	}
	return len(u.plan.cmd.Keys)
}

// key is the unit's i-th key.
func (u *unit) key(i int) []byte {
	if u.keys != nil {
		i = u.keys[i]
	}
	return u.plan.cmd.Args[u.plan.cmd.Keys[i]]
}

// conflicts says that two units must run in their order: they have a key in common, and one of them may change it.
func (u *unit) conflicts(v *unit) bool {
	if u.plan.readOnly() && v.plan.readOnly() {
		return false
	}
	return u.shares(v)
}

// fewKeys is how many keys of a unit are compared with each of another's.
const fewKeys = 8

// shares says that two units have a key in common.
func (u *unit) shares(v *unit) bool {
	if u.count() > v.count() {
		u, v = v, u
	}
	if u.count() <= fewKeys {
		for i := range u.count() {
			for k := range v.count() {
				if bytes.Equal(u.key(i), v.key(k)) {
					return true
				}
			}
		}
		return false
	}
	keys := make(map[string]struct{}, u.count())
	for i := range u.count() {
		keys[string(u.key(i))] = struct{}{}
	}
	for k := range v.count() {
		if _, both := keys[string(v.key(k))]; both {
			return true
		}
	}
	return false
}

// severalKeys says that the command has more than one key.
func (p *Plan) severalKeys() bool { return len(p.cmd.Keys) > 1 }

func (u *unit) isDone() bool { return u.done }

// settled says that nothing of the plan is still to be done.
func (p *Plan) settled() bool {
	if p.done {
		return true
	}
	for i := range p.units {
		if !p.units[i].done {
			return false
		}
	}
	return len(p.units) > 0 // else they are to be made
}

// giveUp ends all that is not done.
func (p *Plan) giveUp(err error) {
	if p.settled() {
		return
	}
	if len(p.units) == 0 {
		p.Err, p.done = err, true
	}
	for i := range p.units {
		if u := &p.units[i]; !u.done {
			u.err, u.done = err, true
		}
	}
}
