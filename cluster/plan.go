package cluster

import (
	"bytes"
	"slices"
	"time"

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

// CrossSlot is Redis' error for a command with keys in several slots.
const CrossSlot = "CROSSSLOT Keys in request don't hash to the same slot"

const noSlot = -1

// Plan says how a Command is executed: which nodes get what, and how their replies become one. It is made without
// the topology, which is asked when the plan is carried out.
type Plan struct {
	// Set by Executor.Do, and valid until the next Set. Reply is what the client is to get; with Err there is none: a
	// *upstream.NotSentError says that nothing was done (but by other parts of a split command, or on other nodes), a
	// *upstream.LostError that it is unknown, a *upstream.ReplyError that Redis refuses the executor's identity.
	Reply    []byte
	Pieces   [][]byte // of a long reply; see InPieces
	Streamed bool     // what there is of the reply has been handed over; see Stream
	Err      error

	stream   upstream.Sink
	inPieces bool

	cmd   Command
	units []unit
	one   [1]unit // units of a plan that is not split, without another allocation
	whole *unit   // of a plan for many nodes: its wait for a topology in which no slot is without a master
	scan  bool    // SCAN: see scan.go
	fan   bool    // units are by node, and made when its turn comes
	alone bool    // no other command of the client is under way at the same time
	merge bool
	done  bool
}

// unit is what one node gets of a plan.
type unit struct {
	plan     *Plan
	raw      []byte
	slot     int   // noSlot: by node, or anywhere
	keys     []int // of plan.cmd.Keys, which are this unit's; nil: all
	node     *Node // where it goes, when that is not the slot's owner
	home     bool  // it can go to no other node
	optional bool  // node may be left out: a replica, or any of a Partial command
	ask      bool  // ASKING is sent first

	reading bool // goes, or went, to a replica
	master  bool // must not go to a replica any more

	attempts *attempts // nil: nothing has gone wrong yet
	outcome
}

// attempts counts how often a unit was sent, and when it may be sent again.
type attempts struct {
	redirects int
	repeats   int // see mostRepeats
	passed    int // nodes that a unit which goes home has passed over: see passOn
	failures  retry.Backoff
	ready     time.Time // not to be sent before
	until     time.Time // is not tried again after; zero: it has not been tried again yet
}

// tries returns the unit's attempts, which the first call makes.
func (u *unit) tries() *attempts {
	if u.attempts == nil {
		u.attempts = &attempts{}
	}
	return u.attempts
}

// due is when the unit may be sent; zero: at once.
func (u *unit) due() time.Time {
	if u.attempts == nil {
		return time.Time{}
	}
	return u.attempts.ready
}

// outcome is the result of a unit.
type outcome struct {
	from   *Node // who gave reply
	reply  []byte
	pieces [][]byte // in place of reply: a long one
	begun  bool     // the reply, or a part of it, has been passed on
	err    error
	done   bool
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
	if len(cmd.Keys) == 0 {
		p.alone = true
		if f.Name == "scan" && p.scans() {
			return
		}
		if p.fan = f.Request == AllNodes || f.Request == AllShards; p.fan {
			p.whole, p.merge = &unit{plan: p}, true
			return
		}
		p.single(noSlot)
		return
	}
	slot := Slot(cmd.Args[cmd.Keys[0]])
	for _, k := range cmd.Keys[1:] {
		if Slot(cmd.Args[k]) != slot {
			p.several(f)
			return
		}
	}
	p.single(slot)
}

// single has one unit, the command as it is.
func (p *Plan) single(slot int) {
	p.one[0] = unit{plan: p, raw: p.cmd.Raw, slot: slot}
	p.units = p.one[:]
}

// several splits a command whose keys are in several slots, or refuses it in Redis' words. Redis wants one slot in a
// command even where one node has them all.
func (p *Plan) several(f *Facts) {
	args, keys := p.cmd.Args, p.cmd.Keys
	if f.Request != MultiShard {
		p.answer(CrossSlot)
		return
	}
	step := keys[1] - keys[0]
	switch {
	case !evenly(keys, step): // COMMAND has given odd places for keys
		p.answer(CrossSlot)
		return
	case (len(args)-keys[0])%step != 0, keys[0]+len(keys)*step > len(args):
		p.answer("ERR wrong number of arguments for '" + f.Name + "' command")
		return
	}
	bySlot := map[int]int{} // slot → index of its unit
	for i, k := range keys {
		slot := Slot(args[k])
		at, known := bySlot[slot]
		if !known {
			at = len(p.units)
			bySlot[slot] = at
			p.units = append(p.units, unit{plan: p, slot: slot})
		}
		p.units[at].keys = append(p.units[at].keys, i)
	}
	for i := range p.units {
		u := &p.units[i]
		u.raw = resp.AppendArray(nil, keys[0]+len(u.keys)*step)
		for _, a := range args[:keys[0]] {
			u.raw = resp.AppendBulk(u.raw, a)
		}
		for _, k := range u.keys {
			for _, a := range args[keys[k] : keys[k]+step] {
				u.raw = resp.AppendBulk(u.raw, a)
			}
		}
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

// Slot is the slot of the command's keys; false when it has none, or several.
func (p *Plan) Slot() (int, bool) {
	if p.fan || p.scan || p.merge || p.done && len(p.units) == 0 || p.units[0].slot == noSlot {
		return 0, false
	}
	return p.units[0].slot, true
}

// From is the node that gave Reply; nil when there is no reply, or it was made of several.
func (p *Plan) From() *Node {
	if p.merge || len(p.units) != 1 {
		return nil
	}
	return p.units[0].from
}

// readOnly says that the command changes nothing.
func (p *Plan) readOnly() bool { return p.cmd.Facts.ReadOnly }

// repeatable says that the command may be sent again when its reply was lost.
func (p *Plan) repeatable() bool { return p.readOnly() && !p.cmd.Facts.Script }

// fanOut makes the units of a plan for many nodes, and keeps them up with the topology: a node that has come gets one,
// one that has left, or is a replica now, is not waited for, and what it said does not count. A Partial command leaves out nodes in trouble.
func (p *Plan) fanOut(s *Snapshot) {
	nodes := s.Masters
	if p.cmd.Facts.Request == AllNodes {
		nodes = s.All()
	}
	before := p.units
	p.units = make([]unit, 0, len(nodes))
	for i, n := range nodes {
		u := unit{plan: p, raw: p.cmd.Raw, slot: noSlot, node: n, home: true}
		if at := slices.IndexFunc(before, func(b unit) bool { return b.node == n }); at >= 0 {
			u = before[at]
		}
		if !u.done && p.cmd.Facts.Partial && n.InTrouble() && s.otherWell(n) {
			continue
		}
		u.optional = i >= len(s.Masters) || p.cmd.Facts.Partial
		p.units = append(p.units, u)
	}
}

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

// goesHome says that the plan is for the one node that the executor's commands without keys go to: such plans keep their
// order in one write.
func (p *Plan) goesHome() bool { return p.alone && !p.fan && !p.scan }

// severalKeys says that the command has more than one key.
func (p *Plan) severalKeys() bool { return len(p.cmd.Keys) > 1 }

func (p *Plan) unsettled() bool { return !p.settled() }

// settled says that nothing of the plan is still to be done.
func (p *Plan) settled() bool {
	if p.done {
		return true
	}
	if (p.fan || p.scan) && len(p.units) == 0 {
		return false
	}
	for i := range p.units {
		if !p.units[i].done {
			return false
		}
	}
	return true
}
