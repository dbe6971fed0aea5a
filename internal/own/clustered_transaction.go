package own

import (
	"context"
	"math"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// A transaction is queued at one node, and nothing of it runs before EXEC. Only its first key tells which node that
// should be: until then it is at any, and when that key comes it is queued again at the key's node, while it is short. Slots
// move: a command that the node redirects is answered QUEUED here. EXEC waits for all earlier replies, and then the whole
// transaction is queued again where its slot is; of one that is too long for that EXEC says so. That is not done if keys
// are watched, because the node that watched them may have missed a change: EXEC is then answered null, as if one had
// changed, and the client begins anew. What one node has refused to queue makes EXEC abort at every other, as it would
// there.

// transactionKept is how many bytes of queued commands are kept to be queued again, of which each takes queuedBytes besides
// its own. They count for --max-query-memory.
const (
	transactionKept = 8 << 20
	queuedBytes     = 256
)

// tooLong is EXEC's reply when the node that has the transaction cannot run it, and no other can be given it.
const tooLong = "EXECABORT Transaction discarded because its slot is at another node, " +
	"where no more than 8 MB are queued again: send a command with a key first"

// transaction is what a client has queued.
type transaction struct {
	kept  downstream.Account
	cmds  []queuedCommand
	size  int  // bytes, also of commands that are no longer kept
	slot  int  // of its keys, or backend.NoSlot
	cross bool // its keys are in several slots

	rights backend.RightsChange // that its commands may cause
}

type queuedCommand struct {
	raw    []byte
	cmd    *commandtable.Command
	effect dedicated.Effect
}

// multi is MULTI. It goes to the node where keys are watched, or to that of the first key that follows in the same pipeline.
func (u *clustered) multi(p *conn, cmd redcon.Command, c *commandtable.Command) {
	tx := &transaction{slot: backend.NoSlot, kept: u.client.Reader.NewAccount()}
	if p == nil {
		slot := u.slotAhead()
		if slot == backend.NoSlot {
			u.multiAnywhere(tx, c)
			return
		}
		if p = u.at(p, slot, c); p == nil {
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

// multiAnywhere is MULTI of a client without a connection, at any node: at another one if the first is lost, or in trouble.
func (u *clustered) multiAnywhere(tx *transaction, c *commandtable.Command) {
	forwarded()
	for until := time.Now().Add(u.nodes.RetryFor()); ; {
		p := u.at(nil, backend.NoSlot, c)
		if p == nil {
			return
		}
		e := &dedicated.Reply{Cmd: c, Kind: c.Conn}
		well := u.whileWell(p, func() {
			p.Own(e, multiCommand)
			p.Settled()
		})
		reply, err := p.Answer(e)
		if well && err == nil {
			p.slots.tx = tx
			u.client.Give(reply)
			return
		}
		p.Close()
		u.conn = nil
		if u.client.End.Over() {
			return
		}
		if time.Now().After(until) {
			u.Failed(c, err)
			return
		}
	}
}

// whileWell calls wait, which waits for replies on p, and closes p as soon as its node is in trouble and another one is not; false: so it was.
func (u *clustered) whileWell(p *conn, wait func()) bool {
	ctx, done := u.nodes.Snapshot().While(u.Context, p.Node)
	defer done()
	stop := context.AfterFunc(ctx, func() { p.Close() })
	wait()
	return stop()
}

// slotAhead returns the slot of the first key in those commands of the transaction that the client has already sent.
func (u *clustered) slotAhead() int {
	t := u.Routes.Load().Table
	for _, next := range u.next {
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
	kind := commandtable.ConnNone
	switch {
	case leaves(c, cmd):
		return !p.Settled()
	case here && c.Barred:
		p.bar(c)
		return true
	case c.Conn == commandtable.ConnExec && len(cmd.Args) == 1:
		u.exec(p, cmd, c)
		return true
	case c.Conn == commandtable.ConnExec, // it ends the transaction, too
		commandtable.ArityFits(c.Arity, len(cmd.Args)): // else Redis refuses it, whatever it is, and marks the transaction
		kind = c.Conn
	}
	switch kind {
	case commandtable.ConnWatch:
		forwarded()
		e := &dedicated.Reply{Kind: commandtable.ConnMulti, Instead: noWatchInMulti}
		p.Send(e, multiCommand) // it is refused as WATCH is, to which the node might answer MOVED
	case commandtable.ConnExec, commandtable.ConnDiscard, commandtable.ConnMulti:
		u.send(p, cmd, c)
		if p.Settled() && !p.InTransaction() {
			p.forgetQueued()
		}
	case commandtable.ConnSubscribe, commandtable.ConnTracking, commandtable.ConnMonitor:
		p.bar(c)
	default:
		if p = u.toSlot(p, cmd, c); p != nil {
			u.queue(p, inNoDatabase(cmd, c), c, here)
		}
	}
	return true
}

// toSlot notes the slot of a command that is to be queued. With the first slot the transaction goes to that slot's node: toSlot returns the
// connection there. If it returns nil, the client has been given the error.
func (u *clustered) toSlot(p *conn, cmd redcon.Command, c *commandtable.Command) *conn {
	slot, cross := u.forwarder.SlotOf(c, cmd.Args)
	tx := p.slots.tx
	if tx == nil || slot == backend.NoSlot || cross { // Redis itself refuses one command with keys in several slots
		return p
	}
	first := tx.slot == backend.NoSlot
	tx.cross = tx.cross || !first && slot != tx.slot
	tx.slot = slot
	if to := u.nodes.Snapshot().Owner(slot); !first || to == nil || to == p.Node || tx.size > transactionKept {
		return p
	}
	if !p.Settled() {
		return nil
	}
	now := p.Status()
	if !now.Multi { // just lost
		return p
	}
	p.slots.tx = nil
	u.whileWell(p, p.undo)
	if u.letGo(); u.lost.Multi { // just now
		tx.kept.Set(0)
		u.inLostTransaction(c.Conn, false)
		return nil
	}
	to, err := u.connectSlot(slot, &u.View)
	if err == nil {
		u.conn = to
		err = tx.begin(to, false, now.Wrong)
	}
	if err != nil {
		u.drop()
		tx.kept.Set(0)
		u.addLost(dedicated.Lost{Multi: true, Cause: err})
		u.client.Fail(err)
		u.Trouble(err)
		return nil
	}
	to.slots.tx = tx
	return to
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

// keep notes a command of the transaction, to be queued again unless there is too much for that.
func (tx *transaction) keep(cmd redcon.Command, c *commandtable.Command, e dedicated.Effect) {
	tx.rights.Note(c, cmd.Args)
	if tx.size += len(cmd.Raw) + queuedBytes; tx.size > transactionKept {
		tx.cmds = nil
		tx.kept.Set(0)
		return
	}
	tx.kept.Set(tx.size)
	tx.cmds = append(tx.cmds, queuedCommand{raw: append([]byte(nil), cmd.Raw...), cmd: c, effect: e})
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
		u.client.Error(cluster.CrossSlot)
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
		again := dedicated.IsRedirect(refusal) && tx.slot != backend.NoSlot
		p.discard()
		switch {
		case again && watch:
			u.null()
			return
		case again && tx.size > transactionKept:
			u.client.Error(tooLong)
			return
		case !again || time.Now().After(until):
			u.client.Give(refusal)
			return
		}
		next, ask, err := u.redirected(p, refusal, tx.slot)
		if err != nil {
			u.client.Fail(err)
			u.Trouble(err)
			return
		}
		p = next
		if err = tx.begin(p, ask, now.Wrong); u.client.End.Over() {
			return
		}
		if err != nil {
			u.drop()
			u.client.Fail(err)
			u.Trouble(err)
			return
		}
		refusal = p.Status().Refused
	}
}

// begin queues the transaction once more, at p's node. wrong: what makes EXEC abort it was among what another node was to queue. With an
// error there is no transaction.
func (tx *transaction) begin(p *conn, ask, wrong bool) error {
	if ask { // before MULTI it holds for the whole transaction
		p.Own(&dedicated.Reply{}, asking)
	}
	begun := p.Own(&dedicated.Reply{Kind: commandtable.ConnMulti}, multiCommand)
	p.Settled()
	reply, err := p.Answer(begun)
	if err == nil {
		err = upstream.ErrorIn(reply)
	}
	if err != nil { // what is queued would be run
		return err
	}
	p.Locked(func(bool) { p.rights = tx.rights })
	for _, q := range tx.cmds {
		p.Own(&dedicated.Reply{Cmd: q.cmd, Effect: q.effect, Queues: true}, q.raw)
	}
	if wrong {
		p.Own(&dedicated.Reply{}, marking)
	}
	if !p.Settled() || p.InTransaction() {
		return nil
	}
	return &upstream.NotSentError{Cause: dedicated.ErrGone}
}
