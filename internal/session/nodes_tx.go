package session

import (
	"strings"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
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
	slot  int  // of its keys, or backend.NoSlot
	cross bool // they are in several
}

type queuedCommand struct {
	raw    []byte
	cmd    *commandtable.Command
	effect dedicated.Effect
}

// multi is MULTI: at the node where keys are watched, or that of the first key there is in the same pipeline.
func (u *clustered) multi(p *dedicatedConn, cmd redcon.Command, c *commandtable.Command) {
	tx := &transaction{slot: backend.NoSlot, kept: u.s.guard.CommandsKept()}
	if p == nil {
		if p = u.dedicatedFor(p, u.slotAhead(), c); p == nil {
			return
		}
	} else if u.s.own.view.Watch.Load() {
		tx.slot = p.slots.watched
	}
	if p.slots.ask {
		p.Own(&dedicated.Reply{}, asking)
	}
	p.forgetQueued()
	p.slots.tx = tx
	u.s.send(p, cmd, c)
	p.Settled()
}

// slotAhead is the slot of the first key in what the client has sent already of the transaction.
func (u *clustered) slotAhead() int {
	t := u.s.srv.facts.table.Load()
	for _, next := range u.s.batch.next {
		c, _ := t.find(next.Args)
		if c == nil || c.Conn == commandtable.ConnExec || c.Conn == commandtable.ConnDiscard {
			break
		}
		if slot, _ := u.s.pipes.SlotOf(c, next.Args); slot != backend.NoSlot {
			return slot
		}
	}
	return backend.NoSlot
}

// nested is a command that is refused inside a transaction as WATCH is, and has no key.
var nested = resp.AppendCommand(nil, "MULTI")

const noWatchInMulti = "ERR WATCH inside MULTI is not allowed"

// inTransaction is for all that comes between MULTI and its end.
func (u *clustered) inTransaction(p *dedicatedConn, cmd redcon.Command, c *commandtable.Command, answer answer) {
	switch {
	case c == nil:
		p.Taint()
	case c.Always: // QUIT, RESET
		if p.Settled() {
			u.s.release()
			answer(u.s, cmd.Args)
		}
		return
	case c.Conn == commandtable.ConnExec && len(cmd.Args) == 1:
		u.exec(p, cmd, c)
		return
	case c.Conn == commandtable.ConnWatch && len(cmd.Args) > 1:
		p.Send(&dedicated.Reply{Instead: noWatchInMulti}, nested) // the node of this transaction might say MOVED of the key
		return
	case c.Conn == commandtable.ConnExec, c.Conn == commandtable.ConnDiscard, c.Conn == commandtable.ConnMulti, c.Conn == commandtable.ConnWatch:
		u.s.send(p, cmd, c)
		if p.Settled() && !p.InTransaction() {
			p.forgetQueued()
		}
		return
	case answer != nil && c.Barred:
		p.Send(&dedicated.Reply{Instead: notInMulti}, marking)
		return
	case c.Conn == commandtable.ConnSubscribe, c.Conn == commandtable.ConnTracking, c.Conn == commandtable.ConnMonitor:
		p.Send(&dedicated.Reply{Instead: notInMulti}, marking)
		return
	case strings.HasPrefix(c.Name, "client|"):
		p.Taint() // what it sets on the connection is this client's
	}
	e := &dedicated.Reply{Cmd: c, Queues: p.slots.tx != nil}
	if c != nil && answer != nil {
		e.Effect = effectOf(c, cmd.Args)
		cmd.Raw = u.s.queuedAs(c, cmd.Raw, e.Effect)
	}
	if tx := p.slots.tx; tx != nil {
		tx.add(u, cmd, c, e.Effect)
		e.Queues = tx.size <= transactionKept
	}
	p.Send(e, cmd.Raw)
}

// add notes a command.
func (tx *transaction) add(u *clustered, cmd redcon.Command, c *commandtable.Command, e dedicated.Effect) {
	if slot, cross := u.s.pipes.SlotOf(c, cmd.Args); slot != backend.NoSlot && !cross { // Redis itself says so of one command
		tx.cross = tx.cross || tx.slot != backend.NoSlot && slot != tx.slot
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
func (p *dedicatedConn) forgetQueued() {
	if tx := p.slots.tx; tx != nil {
		p.slots.tx = nil
		tx.kept.Set(0)
	}
}

// exec is EXEC.
func (u *clustered) exec(p *dedicatedConn, cmd redcon.Command, c *commandtable.Command) {
	tx := p.slots.tx
	if p.slots.tx = nil; tx == nil {
		return
	}
	defer tx.kept.Set(0)
	if !p.Settled() {
		return
	}
	now := p.Status()
	refusal, watch := now.Refused, now.Watch
	if tx.cross { // what Redis would say, had it all of the slots
		u.s.discard(p)
		u.s.error(crossSlot)
		return
	}
	for until := time.Now().Add(u.nodes.RetryFor()); ; {
		if refusal == nil {
			e := &dedicated.Reply{Cmd: c, Kind: c.Conn, Refusal: &refusal}
			p.Send(e, cmd.Raw)
			if !p.Settled() || e.Lost != nil || refusal == nil {
				p.slots.watched, p.slots.ask = backend.NoSlot, false
				return
			}
		}
		again := dedicated.IsRedirect(refusal) && tx.slot != backend.NoSlot && tx.size <= transactionKept
		switch {
		case again && watch:
			u.s.discard(p)
			u.s.batch.Out = resp.AppendNullArray(u.s.batch.Out, u.s.ident.Proto)
			return
		case !again || time.Now().After(until):
			u.s.discard(p)
			u.s.batch.Out = append(u.s.batch.Out, refusal...)
			return
		}
		from := p.Node
		u.s.discard(p)
		u.closeUnusedDedicated()
		next, ask, err := u.openDedicatedInstead(refusal, tx.slot, from)
		if err != nil {
			u.s.fail(err)
			u.s.noteTrouble(err)
			return
		}
		p = next
		if refusal = tx.queueAt(p, ask); u.s.guard.Over() {
			return
		}
	}
}

var (
	discardCommand = resp.AppendCommand(nil, "DISCARD")
	multiCommand   = resp.AppendCommand(nil, "MULTI")
)

// queueAt queues the transaction once more, and returns a redirect if there was one.
func (tx *transaction) queueAt(p *dedicatedConn, ask bool) (refusal []byte) {
	if ask { // which holds for all of it
		p.Own(&dedicated.Reply{}, asking)
	}
	p.Own(&dedicated.Reply{Kind: commandtable.ConnMulti}, multiCommand)
	sent := make([]*dedicated.Reply, len(tx.cmds))
	for i, q := range tx.cmds {
		sent[i] = p.Own(&dedicated.Reply{Cmd: q.cmd, Effect: q.effect}, q.raw)
	}
	if !p.Settled() {
		return nil
	}
	for _, e := range sent {
		if reply, err := p.Answer(e); err == nil && dedicated.IsRedirect(reply) {
			return reply
		}
	}
	return nil
}
