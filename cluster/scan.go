package cluster

import (
	"context"
	"errors"
	"strconv"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// SCAN goes over the masters one after the other, and all it knows is in the cursor (cursor.go): any proxy can go on with it.
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
// table of one slot) << 14 | slot, and the slots are scanned in their order. We take it for a number that means nothing,
// unless it is 2^32 or more: Redis promises no more than 2^32 keys, so that it is of the second kind, and says where the
// node is. That is needed, since ours has no room for a place in a large slot beside all else (goOn). A server that has
// returned a key of a later slot then has cursors of a third kind, and is refused.
const (
	finest    = 6 // the class of a single slot
	following = 7 // the class of a migrating slot's new node

	bySlot = 1 << 32 // from here on a node's cursor is by slot
)

var stageSlots = [...]int{1: 2048, 2: 512, 3: 128, 4: 32, 5: 8, finest: 1, following: 1}

const errNodeCursor = "ERR the node's cursor is too large for a cluster's"

const errInvalidCursor = "ERR invalid cursor"

// cursor is the cursor of a SCAN as Redis reads it, which also takes an empty word, a sign, and with a minus what is left to 2^64. Those from
// 2^63 on are none of ours. ok is false when it is no number at all: a node says so.
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

// scans makes p a plan of SCAN; false: it has no cursor.
func (p *Plan) scans() bool {
	cursor, ok := p.cursor()
	switch {
	case !ok:
		return false
	case cursor >= 1<<63:
		p.answer(errInvalidCursor)
	default:
		p.scan, p.whole = true, &unit{plan: p}
	}
	return true
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

// next is where class 0 goes on after the owner of slot: at the next node's first slot; Slots when there is none.
func (s *Snapshot) next(slot int) int {
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

// scan makes one step of a SCAN, in the topology that gather found whole: in a later one a slot may have no owner.
func (e *Executor) scan(ctx context.Context, p *Plan) {
	s := e.seen
	began, _ := p.cursor()
	at := s.unfold(decodeCursor(began))
	to, err := e.successor(ctx, s, at)
	var st stage
	if err == nil {
		if at.class == following && to == nil {
			at = at.again()
		}
		st = s.stageAt(at, to)
		if (at.node != 0 || at.class == 0 && at.slot != 0) && at.mark != st.mark {
			at = at.again()
			st = s.stageAt(at, nil)
		}
		at.mark = st.mark
	}
	var reply []byte
	if err == nil {
		reply, err = e.scanNode(ctx, p, st.node, at.node)
	}
	n, body, _ := resp.Open(reply)
	cursor, keys := resp.Cut(body)
	switch {
	case err != nil:
		e.failed(p.whole, err)
		if p.whole.done {
			p.Err, p.done = p.whole.err, true
		}
	case n != 2:
		p.Reply, p.done = reply, true
	default:
		e.scanned(ctx, p, s, at, st, cursor, keys)
	}
}

// successor is the node that the slot of a position in class 7 goes to; nil: it is not on its way any more.
func (e *Executor) successor(ctx context.Context, s *Snapshot, at position) (*Node, error) {
	if at.class != following {
		return nil, nil
	}
	own, err := e.selfDescription(ctx, s.Owner(at.slot))
	if err != nil || !own.has[at.slot] || own.epoch != s.epochs[s.Owner(at.slot)] {
		return nil, err
	}
	return s.withID(own.moving[at.slot]), nil
}

// scanNode sends one step of the SCAN to a node, as the client, and returns the reply.
func (e *Executor) scanNode(ctx context.Context, p *Plan, n *Node, cursor uint64) ([]byte, error) {
	args := p.cmd.Args
	raw := resp.AppendArray(nil, len(args))
	raw = resp.AppendBulk(raw, args[0])
	raw = resp.AppendBulkString(raw, strconv.FormatUint(cursor, 10))
	for _, a := range args[2:] {
		raw = resp.AppendBulk(raw, a)
	}
	e.clear()
	e.add(&unit{plan: p, raw: raw, slot: noSlot, node: n}, n)
	e.send(ctx)
	b := e.round.batches[0]
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

// goOn says where a stage goes on whose node has answered with that cursor. over: it does not, and is complete up to the slot end; next is
// where the scan goes on then, unless endStage says otherwise or next begins where the stage did.
//
// By a cursor that is by slot it is known which slots the node has passed. Those that the stage is not for are skipped. One that it is for is
// scanned alone from there on, in a stage of its own, since in that the slot need not be in the cursor twice. The stage has begun with the
// one before: its mark is made from the topology that the mark before has just been compared with.
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

// scanned makes the client's reply from a node's.
func (e *Executor) scanned(ctx context.Context, p *Plan, s *Snapshot, at position, st stage, nodeCursor, keys []byte) {
	said, _ := resp.Outline(nodeCursor)
	cursor, err := strconv.ParseUint(string(said.Text), 10, 64)
	if err != nil || cursor >= bySlot && !noneBehind(keys, int(cursor%Slots)) {
		p.answer(errNodeCursor)
		return
	}
	next, end, over := s.goOn(at, st, cursor)
	if over {
		behind, err := e.endStage(ctx, s, at, stage{st.node, end, st.mark})
		if err != nil {
			p.answer("ERR SCAN of a cluster: " + err.Error())
			return
		}
		if next.slot == at.slot || next.slot != behind.slot {
			next = behind
		}
	}
	ours, fits := s.encode(next)
	if !fits && next.class == 0 {
		ours, fits = s.encode(next.again())
	}
	if !fits {
		p.answer(errNodeCursor)
		return
	}
	out := resp.AppendArray(make([]byte, 0, len(keys)+64), 2)
	out = resp.AppendBulkString(out, strconv.FormatUint(ours, 10))
	if at.class == 0 {
		out = append(out, keys...)
	} else {
		out = appendKeys(out, keys, at.slot, st.end)
	}
	p.Reply, p.done = out, true
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

// endStage says where the scan goes on, now that the stage's node has nothing more to say.
func (e *Executor) endStage(ctx context.Context, s *Snapshot, at position, st stage) (position, error) {
	owner := s.Owner(at.slot)
	own, err := e.selfDescription(ctx, owner)
	if err == errNoOwnWords {
		return at, err
	}
	if err != nil || !own.master || own.epoch != s.epochs[owner] {
		e.c.Refresh()
		return at.again(), nil
	}
	if at.class == following {
		if own.moving[at.slot] != st.node.ID || !own.has[at.slot] {
			return at.again(), nil
		}
		return position{class: finest - 1, slot: at.slot + 1}, nil
	}
	leaving := Slots // the first slot that is being migrated away
	for slot := at.slot; slot < Slots; slot++ {
		if s.Owner(slot) != owner || at.class != 0 && slot >= st.end {
			continue
		}
		if !own.has[slot] {
			e.c.Refresh()
			return at.again(), nil
		}
		if own.moving[slot] != "" {
			leaving = min(leaving, slot)
		}
	}
	switch {
	case leaving == at.slot && at.class == finest:
		return position{class: following, slot: at.slot}, nil
	case leaving == at.slot:
		return position{class: finest, slot: at.slot}, nil
	case leaving < Slots:
		return position{class: finest, slot: min(leaving, st.end)}, nil
	case at.class == 0:
		return position{slot: s.next(at.slot), mark: st.mark}, nil
	}
	return position{class: max(at.class-1, 1), slot: st.end}, nil
}

var errNoOwnWords = errors.New("the service account may not ask for CLUSTER NODES")

// selfDescription asks a node, as the service account, what it has.
func (e *Executor) selfDescription(ctx context.Context, n *Node) (*selfDescription, error) {
	said, err := e.askNode(ctx, n, askNodes)
	if err != nil {
		return nil, err
	}
	own, ok := readSelfDescription(string(said.Text))
	if !ok {
		return nil, errNoOwnWords
	}
	return own, nil
}

var askNodes = resp.AppendCommand(nil, "CLUSTER", "NODES")
