package own

import (
	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// A transaction before a cluster is queued at one node, and nothing of it runs before EXEC. Only its first key tells
// which node that should be: until then it is at any, and what has come is queued again at the key's node, while that is
// short. If the slot moves later, its node refuses what comes, and the transaction is aborted, as any client's of a
// cluster is. So it is if the keys are in several slots, even where one node has them all.

// headKept is how many bytes of the commands before the first key are kept, of which each takes queuedBytes besides its
// own. They count for --max-query-memory.
const (
	headKept    = 1 << 20
	queuedBytes = 256
)

// transaction is what a client of a cluster has queued since MULTI.
type transaction struct {
	slot int             // of its keys, or backend.NoSlot
	head []queuedCommand // those before the first key; none of them when there is too much
	size int             // bytes, also of commands that are not kept

	rights backend.RightsChange // that the head may cause
	kept   downstream.Account   // of size
}

type queuedCommand struct {
	raw    []byte
	cmd    *commandtable.Command
	effect dedicated.Effect
}

// differ says that both are slots, and not the same.
func differ(slot, other int) bool {
	return slot != other && slot != backend.NoSlot && other != backend.NoSlot
}

// keep notes a command that is queued before the first key.
func (tx *transaction) keep(q queuedCommand, args [][]byte) {
	tx.rights.Note(q.cmd, args)
	if tx.size += len(q.raw) + queuedBytes; tx.tooLong() {
		tx.forget()
		return
	}
	tx.head = append(tx.head, q)
	tx.kept.Set(tx.size)
}

// tooLong says that the head is not kept.
func (tx *transaction) tooLong() bool { return tx.size > headKept }

// forget forgets the head.
func (tx *transaction) forget() {
	tx.head = nil
	tx.kept.Set(0)
}

// multi is MULTI. It goes to the node where keys are watched, or to that of the first key that follows in the same
// pipeline.
func (u *clustered) multi(p *conn, cmd redcon.Command, c *commandtable.Command) {
	tx := &transaction{slot: backend.NoSlot, kept: u.client.Reader.NewAccount()}
	if p != nil {
		tx.slot = p.slots.watched
	} else if ahead := u.slotAhead(); ahead == backend.NoSlot {
		u.multiAnywhere(tx, cmd, c)
		return
	} else if p = u.at(nil, ahead, c); p == nil {
		return
	}
	if p.slots.ask {
		p.Own(&dedicated.Reply{}, asking)
	}
	p.forgetQueued()
	p.slots.tx = tx
	u.send(p, cmd, c)
	p.Wait()
}

// multiAnywhere is MULTI of a client without a connection, at any node: at another one if the first is lost, or in
// trouble.
func (u *clustered) multiAnywhere(tx *transaction, cmd redcon.Command, c *commandtable.Command) {
	forwarded()
	u.follow(c, nil, u.nodes.Tries(backend.NoSlot), func(p *conn) ([]byte, cluster.Refusal, error) {
		e := &dedicated.Reply{Cmd: c, Kind: c.Conn}
		p.Own(e, cmd.Raw)
		failed := p.WaitWell(u.nodes.Snapshot())
		answer, err := p.Answer(e)
		switch {
		case err == nil && failed == nil:
			p.slots.tx = tx
			return answer, cluster.Refusal{}, nil
		case err == nil: // the reply has come just when it was no longer waited for
			err = &upstream.NotSentError{Cause: failed}
		}
		p.drop()
		u.conn = nil
		return nil, cluster.Unreached, err
	})
}

// slotAhead returns the slot of the first key in those commands of the transaction that the client has already sent.
func (u *clustered) slotAhead() int {
	t := u.Routes.Load().Table
	for _, next := range u.next {
		c := t.Find(next.Args)
		if c == nil || c.Conn.Ends() {
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
	fits := commandtable.ArityFits(c.Arity, len(cmd.Args))
	kind := c.Conn
	switch {
	case leaves(c, cmd):
		return !p.Wait()
	case here && c.Barred, fits && c.Clustered.Barred:
		p.bar(c)
		return true
	case kind != commandtable.ConnExec && !fits: // Redis refuses it, whatever it is, and marks the transaction; EXEC ends that
		kind = commandtable.ConnNone
	}
	switch kind {
	case commandtable.ConnWatch:
		forwarded()
		e := &dedicated.Reply{Kind: commandtable.ConnMulti, Instead: noWatchInMulti}
		p.Send(e, multiCommand) // it is refused as WATCH is, to which the node might answer MOVED
	case commandtable.ConnExec, commandtable.ConnDiscard, commandtable.ConnMulti:
		forwarded()
		p.Send(&dedicated.Reply{Cmd: c, Kind: kind, Args: len(cmd.Args) - 1, InMulti: true}, cmd.Raw)
		if p.Wait() && !p.InTransaction() {
			p.forgetQueued()
			p.slots.unwatched()
			// The client has got an error instead of a redirect (dedicated/conversation.go); its next try is to go elsewhere.
			u.nodes.Refusal(p.Node, p.Status().Moved)
		}
	default:
		if p = u.toSlot(p, cmd, c); p != nil {
			u.queue(p, inNoDatabase(cmd, c), c, here)
		}
	}
	return true
}

// toSlot returns the connection where a command is to be queued. If it returns nil, the client has been given the error.
func (u *clustered) toSlot(p *conn, cmd redcon.Command, c *commandtable.Command) *conn {
	slot, cross := u.forwarder.SlotOf(c, cmd.Args)
	tx := p.slots.tx
	switch {
	case tx == nil, cross, slot == backend.NoSlot, slot == tx.slot: // Redis itself refuses one command with keys in several slots
		return p
	case tx.slot != backend.NoSlot:
		p.barAs(commandtable.CrossSlot)
		return nil
	}
	tx.slot = slot
	defer tx.forget()
	if tx.tooLong() || !u.elsewhere(slot, p.Node) {
		return p
	}
	return u.begunAt(slot, p, tx, c, len(cmd.Args)-1)
}

// begunAt has a transaction begin again at the node of its first key, with which a command of so many arguments has
// come. If it returns nil, the client has been given the error.
func (u *clustered) begunAt(slot int, p *conn, tx *transaction, c *commandtable.Command, args int) *conn {
	if !p.Wait() {
		return nil
	}
	now := p.Status()
	if !now.Multi { // just lost
		return p
	}
	p.slots.tx = nil
	p.sendUndo()
	p.WaitWell(u.nodes.Snapshot())                 // without an answer the connection is closed
	if u.letGo(); u.lost.loss == lostTransaction { // just now
		u.answerLost(nil, c.Conn, args)
		return nil
	}
	to, err := u.reach(u.nodes.Tries(slot))
	if err == nil {
		err = tx.begin(to, now.Wrong)
	}
	if err != nil {
		u.lose(lostTransaction, err)
		u.Failed(c, err)
		return nil
	}
	to.slots.tx = tx
	return to
}

// inNoDatabase is what a node is given to queue for SELECT of another database than 0: SELECT of one that no node has.
// What EXEC says of it is the node's word then, and the connection stays in database 0.
func inNoDatabase(cmd redcon.Command, c *commandtable.Command) redcon.Command {
	if c.Name != "select" || len(cmd.Args) != 2 {
		return cmd
	}
	n, ok := resp.Integer(cmd.Args[1])
	if !ok || n == 0 || int64(int32(n)) != n { // a node refuses what is out of this range in other words
		return cmd
	}
	cmd.Args = [][]byte{cmd.Args[0], []byte("-1")}
	cmd.Raw = resp.Command(cmd.Args)
	return cmd
}

// forgetQueued forgets the transaction, if there is one: it has ended.
func (p *conn) forgetQueued() {
	if tx := p.slots.tx; tx != nil {
		p.slots.tx = nil
		tx.forget()
	}
}

// begin queues the head once more, at p's node. wrong: what makes EXEC abort it was among what another node was to
// queue. With an error there is no transaction, and no connection.
func (tx *transaction) begin(p *conn, wrong bool) error {
	begun := p.Own(&dedicated.Reply{Kind: commandtable.ConnMulti}, multiCommand)
	p.Wait()
	reply, err := p.Answer(begun)
	if err == nil {
		err = upstream.ErrorIn(reply)
	}
	if err != nil { // what is queued would be run
		p.o.drop()
		return err
	}
	p.rights = tx.rights
	for _, q := range tx.head {
		p.Own(&dedicated.Reply{Cmd: q.cmd, Effect: q.effect}, q.raw)
	}
	if wrong {
		p.Own(&dedicated.Reply{}, marking)
	}
	if !p.Wait() || p.InTransaction() {
		return nil
	}
	p.o.drop()
	return &upstream.NotSentError{Cause: dedicated.ErrGone}
}
