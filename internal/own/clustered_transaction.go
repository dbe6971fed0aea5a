package own

import (
	"math"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// A transaction is queued at one node, and nothing of it runs before EXEC. Only its first key tells which node that
// should be, and slots move. So a command that the node redirects is answered QUEUED here. EXEC waits for all earlier
// replies, and then the whole transaction is queued again where its slot is. That is not done if keys are watched,
// because the node that watched them may have missed a change: EXEC is then answered null, as if one had changed, and
// the client begins anew.

// transactionKept is how many bytes of queued commands are kept to be queued again, of which each takes queuedBytes besides
// its own. They count for --max-query-memory.
const (
	transactionKept = 8 << 20
	queuedBytes     = 256
)

// transaction is what a client has queued.
type transaction struct {
	kept   downstream.Account
	cmds   []queuedCommand
	size   int  // bytes, also of commands that are no longer kept
	slot   int  // of its keys, or backend.NoSlot
	cross  bool // its keys are in several slots
	barred bool // it has a command that aborts it, which is among cmds

	rights backend.RightsChange // that its commands may cause
}

type queuedCommand struct {
	raw    []byte
	cmd    *commandtable.Command
	effect dedicated.Effect
}

// multi is MULTI. It goes to the node where keys are watched, or to that of the first key that follows in the same pipeline.
func (u *clustered) multi(p *conn, cmd redcon.Command, c *commandtable.Command) {
	tx := &transaction{slot: backend.NoSlot, kept: u.client.CommandsKept()}
	if p == nil {
		if p = u.at(p, u.slotAhead(), c); p == nil {
			return
		}
	} else if u.View.Watch.Load() {
		tx.slot = p.slots.watched
	}
	if p.slots.ask {
		p.Own(&dedicated.Reply{}, asking)
	}
	p.forgetQueued()
	p.slots.tx = tx
	u.send(p, cmd, c)
	p.Settled()
}

// slotAhead returns the slot of the first key in those commands of the transaction that the client has already sent.
func (u *clustered) slotAhead() int {
	t := u.host.Routes().Table
	for _, next := range u.host.Next() {
		c := t.Find(next.Args)
		if c == nil || c.Conn == commandtable.ConnExec || c.Conn == commandtable.ConnDiscard {
			break
		}
		if slot, _ := u.forwarder.SlotOf(c, next.Args); slot != backend.NoSlot {
			return slot
		}
	}
	return backend.NoSlot
}

var multiCommand = resp.AppendCommand(nil, "MULTI")

const noWatchInMulti = "ERR WATCH inside MULTI is not allowed"

// inTransaction handles the commands between MULTI and the end of the transaction.
func (u *clustered) inTransaction(p *conn, cmd redcon.Command, c *commandtable.Command, here bool) (taken bool) {
	switch {
	case leaves(c, cmd):
		return !p.Settled()
	case c.Conn == commandtable.ConnExec && len(cmd.Args) == 1:
		u.exec(p, cmd, c)
		return true
	case c.Conn == commandtable.ConnWatch && len(cmd.Args) > 1:
		forwarded()
		p.Send(&dedicated.Reply{Instead: noWatchInMulti}, multiCommand) // it is refused as WATCH is, to which the node might answer MOVED
		return true
	case c.Conn == commandtable.ConnExec, c.Conn == commandtable.ConnDiscard, c.Conn == commandtable.ConnMulti, c.Conn == commandtable.ConnWatch:
		u.send(p, cmd, c)
		if p.Settled() && !p.InTransaction() {
			p.forgetQueued()
		}
		return true
	case here && c.Barred, c.Conn == commandtable.ConnSubscribe, c.Conn == commandtable.ConnTracking, c.Conn == commandtable.ConnMonitor:
		p.bar(c)
		return true
	}
	u.queue(p, inNoDatabase(cmd, c), c, here)
	return true
}

// inNoDatabase is what a node is given to queue for SELECT of another database than 0: SELECT of one that no node has. What EXEC says of it
// is the node's word then, and the connection stays in database 0.
func inNoDatabase(cmd redcon.Command, c *commandtable.Command) redcon.Command {
	if c.Name != "select" || len(cmd.Args) != 2 {
		return cmd
	}
	if n, ok := resp.Integer(cmd.Args[1]); !ok || n == 0 || n < math.MinInt32 || n > math.MaxInt32 { // a node refuses what is out of this range in other words
		return cmd
	}
	cmd.Args = [][]byte{cmd.Args[0], []byte("-1")}
	cmd.Raw = resp.Command(cmd.Args)
	return cmd
}

// keep notes a command of the transaction, to be queued again. false: there is too much for that.
func (tx *transaction) keep(f *backend.Forwarder, cmd redcon.Command, c *commandtable.Command, e dedicated.Effect) bool {
	if slot, cross := f.SlotOf(c, cmd.Args); slot != backend.NoSlot && !cross { // Redis itself refuses one command with keys in several slots
		tx.cross = tx.cross || tx.slot != backend.NoSlot && slot != tx.slot
		tx.slot = slot
	}
	tx.rights.Note(c, cmd.Args)
	if tx.size += len(cmd.Raw) + queuedBytes; tx.size > transactionKept {
		tx.cmds = nil
		tx.kept.Set(0)
		return false
	}
	tx.kept.Set(tx.size)
	tx.cmds = append(tx.cmds, queuedCommand{raw: append([]byte(nil), cmd.Raw...), cmd: c, effect: e})
	return true
}

// forgetQueued forgets the transaction, if there is one: it has ended.
func (p *conn) forgetQueued() {
	if tx := p.slots.tx; tx != nil {
		p.slots.tx = nil
		tx.kept.Set(0)
	}
}

// exec is EXEC.
func (u *clustered) exec(p *conn, cmd redcon.Command, c *commandtable.Command) {
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
	if tx.cross { // as a Redis would answer that has all slots
		p.discard()
		u.error(cluster.CrossSlot)
		return
	}
	forwarded()
	for until := time.Now().Add(u.nodes.RetryFor()); ; {
		if refusal == nil {
			over := false
			if refusal, over = p.try(&dedicated.Reply{Cmd: c, Kind: c.Conn}, cmd.Raw, false); over || refusal == nil {
				p.slots.watched, p.slots.ask = backend.NoSlot, false
				return
			}
		}
		again := dedicated.IsRedirect(refusal) && tx.slot != backend.NoSlot && tx.size <= transactionKept
		p.discard()
		switch {
		case again && watch:
			u.null()
			return
		case !again || time.Now().After(until):
			u.relay(refusal)
			return
		}
		next, ask, err := u.redirected(p, refusal, tx.slot)
		if err != nil {
			u.host.Fail(err)
			u.host.Trouble(err)
			return
		}
		p = next
		if refusal = tx.queueAt(p, ask); u.client.Over() {
			return
		}
	}
}

// queueAt queues the transaction once more, and returns a redirect if there was one.
func (tx *transaction) queueAt(p *conn, ask bool) (refusal []byte) {
	if ask { // before MULTI it holds for the whole transaction
		p.Own(&dedicated.Reply{}, asking)
	}
	p.Own(&dedicated.Reply{Kind: commandtable.ConnMulti}, multiCommand)
	p.Locked(func(bool) { p.rights = tx.rights })
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
