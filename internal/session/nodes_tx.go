package session

import (
	"strings"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// A transaction is queued at one node, and nothing of it runs before EXEC. Which node that is, only its first key tells,
// and slots move: so a command that the node sends elsewhere is answered QUEUED here, and at EXEC, which waits for all
// replies before, the whole of it is queued again where its slot is. That is not done when keys are watched, as the node
// that watched them may have missed a change: EXEC then answers null, as if one had changed, and the client begins anew.

// transactionKept is how many bytes of queued commands are kept to be queued again, of which each takes queuedBytes besides
// its own. They count for --max-query-memory.
const (
	transactionKept = 8 << 20
	queuedBytes     = 256
)

// transaction is what a client has queued.
type transaction struct {
	kept  downstream.Account
	cmds  []queuedCommand
	size  int  // bytes, of those that are not kept any more too
	slot  int  // of its keys, or noSlot
	cross bool // they are in several
}

type queuedCommand struct {
	raw    []byte
	cmd    *commandtable.Command
	effect effect
}

// multiNodes is MULTI: at the node where keys are watched, or that of the first key there is in the same pipeline.
func (s *Session) multiNodes(p *dedicated, cmd redcon.Command, c *commandtable.Command) {
	tx := &transaction{slot: noSlot, kept: s.guard.CommandsKept()}
	if p == nil {
		if p = s.dedicatedFor(p, s.slotAhead(), c); p == nil {
			return
		}
	} else if s.view.watch.Load() {
		tx.slot = p.slots.watched
	}
	if p.slots.ask {
		p.own(&pendingReply{}, asking)
	}
	p.forgetQueued()
	p.slots.tx = tx
	p.mu.Lock()
	p.slots.redirect = nil
	p.mu.Unlock()
	s.send(p, cmd, c)
	p.settled()
}

// slotAhead is the slot of the first key in what the client has sent already of the transaction.
func (s *Session) slotAhead() int {
	t := s.srv.table.Load()
	for _, next := range s.next {
		c, _ := t.find(next.Args)
		if c == nil || c.Conn == commandtable.ConnExec || c.Conn == commandtable.ConnDiscard {
			break
		}
		if slot, _ := s.slotOf(c, next.Args); slot != noSlot {
			return slot
		}
	}
	return noSlot
}

// nested is a command that is refused inside a transaction as WATCH is, and has no key.
var nested = resp.AppendCommand(nil, "MULTI")

const noWatchInMulti = "ERR WATCH inside MULTI is not allowed"

// inTransaction is for all that comes between MULTI and its end.
func (s *Session) inTransaction(p *dedicated, cmd redcon.Command, c *commandtable.Command, answer answer) {
	switch {
	case c == nil:
		p.taint()
	case c.Always: // QUIT, RESET
		if p.settled() {
			s.release()
			answer(s, cmd.Args)
		}
		return
	case c.Conn == commandtable.ConnExec && len(cmd.Args) == 1:
		s.execNodes(p, cmd, c)
		return
	case c.Conn == commandtable.ConnWatch && len(cmd.Args) > 1:
		p.send(&pendingReply{instead: noWatchInMulti}, nested) // the node of this transaction might say MOVED of the key
		return
	case c.Conn == commandtable.ConnExec, c.Conn == commandtable.ConnDiscard, c.Conn == commandtable.ConnMulti, c.Conn == commandtable.ConnWatch:
		s.send(p, cmd, c)
		if p.settled() && !p.modes() {
			p.forgetQueued()
		}
		return
	case answer != nil && c.Barred:
		p.send(&pendingReply{instead: notInMulti}, marking)
		return
	case c.Conn == commandtable.ConnSubscribe, c.Conn == commandtable.ConnTracking, c.Conn == commandtable.ConnMonitor:
		p.send(&pendingReply{instead: notInMulti}, marking)
		return
	case strings.HasPrefix(c.Name, "client|"):
		p.taint() // what it sets on the connection is this client's
	}
	e := &pendingReply{cmd: c, queues: p.slots.tx != nil}
	if c != nil && answer != nil {
		e.effect = effectOf(c, cmd.Args)
		cmd.Raw = s.queuedAs(c, cmd.Raw, e.effect)
	}
	if tx := p.slots.tx; tx != nil {
		tx.add(s, cmd, c, e.effect)
		e.queues = tx.size <= transactionKept
	}
	p.send(e, cmd.Raw)
}

// add notes a command.
func (tx *transaction) add(s *Session, cmd redcon.Command, c *commandtable.Command, e effect) {
	if slot, cross := s.slotOf(c, cmd.Args); slot != noSlot && !cross { // Redis itself says so of one command
		tx.cross = tx.cross || tx.slot != noSlot && slot != tx.slot
		tx.slot = slot
	}
	if tx.size += len(cmd.Raw) + queuedBytes; tx.size > transactionKept {
		tx.cmds = nil
		tx.kept.Set(0)
		return
	}
	tx.kept.Set(tx.size)
	tx.cmds = append(tx.cmds, queuedCommand{raw: append([]byte(nil), cmd.Raw...), cmd: c, effect: e})
}

// forgetQueued forgets the transaction, if there is one: it has ended.
func (p *dedicated) forgetQueued() {
	if tx := p.slots.tx; tx != nil {
		p.slots.tx = nil
		tx.kept.Set(0)
	}
}

// execNodes is EXEC.
func (s *Session) execNodes(p *dedicated, cmd redcon.Command, c *commandtable.Command) {
	tx := p.slots.tx
	if p.slots.tx = nil; tx == nil {
		return
	}
	defer tx.kept.Set(0)
	if !p.settled() {
		return
	}
	p.mu.Lock()
	refusal, watch := gathered(p.slots.redirect), p.state.watch
	p.mu.Unlock()
	if tx.cross { // what Redis would say, had it all of the slots
		s.discard(p)
		s.error(crossSlot)
		return
	}
	for until := time.Now().Add(s.srv.o.Cluster.RetryFor()); ; {
		if refusal == nil {
			e := &pendingReply{cmd: c, kind: c.Conn, refusal: &refusal}
			p.send(e, cmd.Raw)
			if !p.settled() || e.lost != nil || refusal == nil {
				p.slots.watched, p.slots.ask = noSlot, false
				return
			}
		}
		again := isRedirect(refusal) && tx.slot != noSlot && tx.size <= transactionKept
		switch {
		case again && watch:
			s.discard(p)
			s.batch.out = resp.AppendNullArray(s.batch.out, s.ident.Proto)
			return
		case !again || time.Now().After(until):
			s.discard(p)
			s.batch.out = append(s.batch.out, refusal...)
			return
		}
		from := p.node
		s.discard(p)
		s.closeUnusedDedicated()
		next, ask, err := s.openDedicatedInstead(refusal, tx.slot, from)
		if err != nil {
			s.fail(err)
			s.noteTrouble(err)
			return
		}
		p = next
		if refusal = tx.queueAt(p, ask); s.guard.Over() {
			return
		}
	}
}

// discard ends the transaction at p's node, if it has not ended it already.
func (s *Session) discard(p *dedicated) {
	p.slots.watched, p.slots.ask = noSlot, false
	if p.modes() {
		p.own(&pendingReply{kind: commandtable.ConnDiscard}, discardCommand)
		p.settled()
	}
}

var (
	discardCommand = resp.AppendCommand(nil, "DISCARD")
	multiCommand   = resp.AppendCommand(nil, "MULTI")
)

// queueAt queues the transaction once more, and returns a redirect if there was one.
func (tx *transaction) queueAt(p *dedicated, ask bool) (refusal gathered) {
	if ask { // which holds for all of it
		p.own(&pendingReply{}, asking)
	}
	p.own(&pendingReply{kind: commandtable.ConnMulti}, multiCommand)
	sent := make([]*pendingReply, len(tx.cmds))
	for i, q := range tx.cmds {
		sent[i] = p.own(&pendingReply{cmd: q.cmd, effect: q.effect}, q.raw)
	}
	if !p.settled() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range sent {
		if isRedirect(*e.got) {
			return *e.got
		}
	}
	return nil
}
