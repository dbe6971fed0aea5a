package cluster

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// SCAN goes over the masters one after the other, and all it knows is in the cursor (cursor.go): any proxy can go on
// with it.
//
// A key's slot never changes, so progress is counted in slots: all keys of slots below cursor.slot that have been
// there throughout have been returned. The next stage is a scan of the owner of that slot. It counts for those
// slots that the node had, without a break and without giving keys away, from the stage's beginning to its end:
//
//   - in class 0, as long as nothing has moved since the scan began, for all of the node's slots. Each node is scanned
//     once, in the order of their first slots;
//   - in classes 1 to 6 for the slots up to cursor.slot + stageSlots[class], or up to the end of the node's range.
//
// A stage has failed if its owner, its slots or its owner's config epoch has changed (every import of a slot raises
// one). Then its slots are scanned again in the next class, so that fewer of them are at stake while slots move; after
// a stage that has not failed the class before comes next. At the end the node itself is asked, so that it does not
// matter how old the topology is that the stage began with. A slot that is being migrated away at the end counts only
// after a stage of its own, and one more (class 7) at the node it goes to: its keys move one way, so a key that the
// first stage did not find was at the new node when the second began.
//
// So every key that is there throughout is returned, some of them more than once, and a scan ends when no slot moves
// for as long as it takes to scan a node. The limits: a migration that is begun, turned back by hand and undone within
// one stage is not seen; one change in 4096 leaves the mark unchanged; and a node that restarts without a failover
// invalidates its cursors, as a Redis alone does.
//
// A node's own cursor is one of two kinds, and nothing tells for sure which kind a server has. Up to Redis 7.2 it is a
// place in the node's only table, below the number of its buckets. Since Redis 7.4 and Valkey 8 it is (a place in the
// table of one slot) << 14 | slot, and the slots are scanned in their order. We take it for a number that means
// nothing, unless it is 2^32 or more: Redis promises no more than 2^32 keys, so that it is of the second kind, and
// says where the node is. That is needed, since ours has no room for a place in a large slot beside all else (goOn).
// A server that has returned a key of a later slot then has cursors of a third kind, and is refused.
const (
	finest    = 6 // the class of a single slot
	following = 7 // the class of a migrating slot's new node

	bySlot = 1 << 32 // from here on a node's cursor is by slot
)

var stageSlots = [...]int{1: 2048, 2: 512, 3: 128, 4: 32, 5: 8, finest: 1, following: 1}

const (
	errNodeCursor    = "ERR the node's cursor is too large for a cluster's"
	errInvalidCursor = "ERR invalid cursor"
)

// cursor is the cursor of a SCAN as Redis reads it, which also takes an empty word, a sign, and with a minus what is
// left to 2^64. Those from 2^63 on are none of ours. ok is false when it is no number at all: a node says so.
func (p *Plan) cursor() (cursor uint64, ok bool) {
	if len(p.cmd.Args) < 2 {
		return 0, false
	}
	digits := string(p.cmd.Args[1])
	if digits == "" {
		return 0, true
	}
	minus := digits[0] == '-'
	if minus || digits[0] == '+' {
		digits = digits[1:]
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if minus {
		n = -n
	}
	return n, err == nil
}

// planScan makes p a plan of SCAN, or of a command that a node refuses because it has no cursor.
func (p *Plan) planScan() {
	cursor, ok := p.cursor()
	switch {
	case !ok:
		p.kind = atHome
		p.single(noSlot)
	case cursor >= 1<<63:
		p.answer(errInvalidCursor)
	default:
		p.kind, p.whole = byCursor, &unit{plan: p}
	}
}

// stage is what one scan of a node is good for.
type stage struct {
	node *Node
	end  int    // the slots from position.slot up to it; class 0: see covers
	mark uint64 // what position.mark must be
}

// stageAt finds the stage of a position. to is the node that the slot goes to, for class 7.
func (s *Snapshot) stageAt(p position, to *Node) stage {
	owner := s.Owner(p.slot)
	st := stage{node: owner, end: s.runEnd(p.slot)}
	switch {
	case p.class == 0:
		st.mark = s.stamp
	case p.class == following:
		st.node, st.end = to, p.slot+1
		st.mark = mix(0, owner.ID+to.ID, s.epochs[owner], p.slot, st.end)
	default:
		st.end = min(st.end, p.slot+stageSlots[p.class])
		st.mark = mix(0, owner.ID, s.epochs[owner], p.slot, st.end)
	}
	st.mark = (st.mark ^ st.mark>>32) % (1 << markBits)
	return st
}

// nextNode is where class 0 goes on after the owner of slot: at the next node's first slot; Slots when there is none.
func (s *Snapshot) nextNode(slot int) int {
	seen := map[*Node]bool{}
	for i, n := range s.all() {
		if i > slot && !seen[n] {
			return i
		}
		seen[n] = true
	}
	return Slots
}

// again is where the scan goes on when the stage at p has failed.
func (p position) again() position {
	return position{class: min(max(p.class+1, 1), finest), slot: p.slot}
}

// scanStep is one step of a SCAN.
type scanStep struct {
	e   *Executor
	ctx context.Context
	p   *Plan
	s   *Snapshot // that gather found whole: in a later one a slot may have no owner
	at  position
	stage
}

// scan makes one step of a SCAN.
func (e *Executor) scan(ctx context.Context, p *Plan) {
	began, _ := p.cursor()
	t := scanStep{e: e, ctx: ctx, p: p, s: e.seen, at: e.seen.unfold(decodeCursor(began))}
	reply, err := t.run()
	if err != nil {
		e.failed(p.whole, err)
		if p.whole.done {
			p.Err, p.done = p.whole.err, true
		}
		return
	}
	n, body, _ := resp.Open(reply)
	if n != 2 { // an error, for one
		p.Reply, p.done = reply, true
		return
	}
	cursor, keys := resp.Cut(body)
	t.answer(cursor, keys)
}

// run finds the stage of the step, and asks its node.
func (t *scanStep) run() (reply []byte, err error) {
	to, err := t.successor()
	if err != nil {
		return nil, err
	}
	if t.at.class == following && to == nil {
		t.at = t.at.again()
	}
	t.stage = t.s.stageAt(t.at, to)
	if t.at.begun() && t.at.mark != t.mark {
		t.at = t.at.again()
		t.stage = t.s.stageAt(t.at, nil)
	}
	t.at.mark = t.mark
	return t.askStage()
}

// begun says that the position is not the first of its stage, or that of class 0 is not the scan's first: it has a
// mark.
func (p position) begun() bool { return p.node != 0 || p.class == 0 && p.slot != 0 }

// successor is the node that the slot of a position in class 7 goes to; nil: it is not on its way any more.
func (t *scanStep) successor() (*Node, error) {
	if t.at.class != following {
		return nil, nil
	}
	owner := t.s.Owner(t.at.slot)
	own, err := t.selfDescription(owner)
	if err != nil || !own.has[t.at.slot] || own.epoch != t.s.epochs[owner] {
		return nil, err
	}
	return t.s.withID(own.moving[t.at.slot]), nil
}

// askStage sends the step to the stage's node, as the client, and returns the reply.
func (t *scanStep) askStage() ([]byte, error) {
	words := slices.Clone(t.p.cmd.Args)
	words[1] = strconv.AppendUint(nil, t.at.node, 10)
	t.e.clear()
	b := t.e.round.batchTo(linkTo{node: t.node}, &t.e.links)
	b.add(&unit{plan: t.p, raw: resp.Command(words), slot: noSlot, fixed: t.node})
	t.e.send(t.ctx)
	if b.err != nil {
		return nil, b.err
	}
	switch replies := b.sink.cut(nil, b.req.Replied); {
	case b.sink.refuse:
		return nil, ErrTooMuch
	case len(replies) != 1:
		return nil, errUncounted
	default:
		return replies[0].joined(), nil
	}
}

// goOn says where a stage goes on whose node has answered with that cursor. over: it does not, and is complete up to
// the slot end; next is where the scan goes on then, unless endStage says otherwise or next begins where the stage did.
//
// By a cursor that is by slot it is known which slots the node has passed. Those that the stage is not for are
// skipped. One that it is for is scanned alone from there on, in a stage of its own, since in that the slot need not
// be in the cursor twice. The stage has begun with the one before: its mark is made from the topology that the mark
// before has just been compared with.
func (s *Snapshot) goOn(at position, st stage, cursor uint64) (next position, end int, over bool) {
	next, end = at, st.end
	next.node = cursor
	slot := int(cursor % Slots)
	switch {
	case cursor < bySlot:
		return next, end, cursor == 0
	case at.class == 0:
		for ; slot < Slots && s.Owner(slot) != st.node; slot++ {
			next.node = uint64(slot + 1)
		}
		return next, end, slot == Slots
	case slot < at.slot:
		next.node = uint64(at.slot)
	case slot >= end:
		return next, end, true
	case at.class < finest:
		next = position{class: finest, slot: slot, node: cursor}
		next.mark = s.stageAt(next, nil).mark
		return next, slot, slot > at.slot
	}
	return next, end, false
}

// answer makes the client's reply from a node's.
func (t *scanStep) answer(nodeCursor, keys []byte) {
	said, _ := resp.Outline(nodeCursor)
	cursor, err := strconv.ParseUint(string(said.Text), 10, 64)
	if err != nil || cursor >= bySlot && !noneBehind(keys, int(cursor%Slots)) {
		t.p.answer(errNodeCursor)
		return
	}
	next, end, over := t.s.goOn(t.at, t.stage, cursor)
	if over {
		behind, err := t.endStage(end)
		if err != nil {
			t.p.answer("ERR SCAN of a cluster: " + err.Error())
			return
		}
		if next.slot == t.at.slot || next.slot != behind.slot {
			next = behind
		}
	}
	ours, fits := t.s.encode(next)
	if !fits && next.class == 0 {
		ours, fits = t.s.encode(next.again())
	}
	if !fits {
		t.p.answer(errNodeCursor)
		return
	}
	out := resp.AppendArray(make([]byte, 0, len(keys)+64), 2)
	out = resp.AppendBulkString(out, strconv.FormatUint(ours, 10))
	if t.at.class == 0 {
		out = append(out, keys...)
	} else {
		out = appendKeys(out, keys, t.at.slot, t.end)
	}
	t.p.Reply, t.p.done = out, true
}

// noneBehind says that none of the keys is in a slot behind that one.
func noneBehind(keys []byte, slot int) bool {
	for key := range resp.Elements(keys) {
		if slotIn(key) > slot {
			return false
		}
	}
	return true
}

// slotIn is the slot of the key in one of a reply's elements.
func slotIn(element []byte) int {
	key, _ := resp.Outline(element)
	return Slot(key.Text)
}

// appendKeys keeps the keys of a stage's slots: the others come in other stages.
func appendKeys(out, keys []byte, from, to int) []byte {
	n, kept := 0, make([]byte, 0, len(keys))
	for key := range resp.Elements(keys) {
		if slot := slotIn(key); slot >= from && slot < to {
			n, kept = n+1, append(kept, key...)
		}
	}
	return append(resp.AppendArray(out, n), kept...)
}

// endStage says where the scan goes on, now that the stage's node has nothing more to say of the slots up to end.
func (t *scanStep) endStage(end int) (position, error) {
	at, owner := t.at, t.s.Owner(t.at.slot)
	own, err := t.selfDescription(owner)
	switch {
	case err == errNoOwnWords:
		return at, err
	case err != nil, !own.master, own.epoch != t.s.epochs[owner]:
		t.e.c.Refresh()
		return at.again(), nil
	case at.class == following && own.moving[at.slot] == t.node.ID && own.has[at.slot]:
		return position{class: finest - 1, slot: at.slot + 1}, nil
	case at.class == following:
		return at.again(), nil
	}
	last := end
	if at.class == 0 {
		last = Slots
	}
	leaving := Slots // the first slot that is being migrated away
	for slot := at.slot; slot < last; slot++ {
		switch {
		case t.s.Owner(slot) != owner:
		case !own.has[slot]:
			t.e.c.Refresh()
			return at.again(), nil
		case own.moving[slot] != "":
			leaving = min(leaving, slot)
		}
	}
	switch {
	case leaving == at.slot && at.class == finest:
		return position{class: following, slot: at.slot}, nil
	case leaving == at.slot:
		return position{class: finest, slot: at.slot}, nil
	case leaving < Slots:
		return position{class: finest, slot: min(leaving, end)}, nil
	case at.class == 0:
		return position{slot: t.s.nextNode(at.slot), mark: t.mark}, nil
	}
	return position{class: max(at.class-1, 1), slot: end}, nil
}

var errNoOwnWords = errors.New("the service account may not ask for CLUSTER NODES")

// selfDescription asks a node, as the service account, what it has.
func (t *scanStep) selfDescription(n *Node) (*selfDescription, error) {
	said, err := t.e.c.askShared(t.ctx, n, askNodes)
	if err != nil {
		return nil, err
	}
	own, ok := readSelfDescription(string(said.Text))
	if !ok {
		return nil, errNoOwnWords
	}
	return own, nil
}
