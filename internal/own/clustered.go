package own

import (
	"context"
	"fmt"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/subscription"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// clustered gives a client connections of its own at the nodes of a cluster. A connection leads to one node, so only
// the commands that need it are sent there. All others are forwarded as usual, after the replies that are pending on
// it have come.
type clustered struct{ *Connections }

// slots is what is known of a connection's slots. Only the client's goroutine uses it.
type slots struct {
	watched int          // the slot of what is watched, or backend.NoSlot
	ask     bool         // the node is importing that slot: ASKING must come before MULTI
	tx      *transaction // the one that is queued
}

// unwatched notes that nothing is watched any more.
func (s *slots) unwatched() { s.watched, s.ask = backend.NoSlot, false }

func (u *clustered) run(p *conn, cmd redcon.Command, c *commandtable.Command, here bool) (taken bool) {
	switch {
	case p.InTransaction():
		return u.inTransaction(p, cmd, c, here)
	case u.mutes(c):
		u.sendMute(cmd, c, here)
		return true
	case !p.Wait():
		return true
	}
	p = u.rest()                                                                  // the next one may be for another node
	needsOwn := c.Conn.Starts() || p != nil && c.Conn == commandtable.ConnUnwatch // without WATCH that changes nothing
	if !needsOwn || c.Clustered.How != commandtable.ClusteredSent {               // what concerns all nodes is answered otherwise
		return false
	}
	return u.runOwn(p, cmd, c)
}

// runOwn runs a command that concerns the connection, or may wait. p is the client's own connection, nil if it has
// none.
func (u *clustered) runOwn(p *conn, cmd redcon.Command, c *commandtable.Command) (taken bool) {
	switch c.Conn {
	case commandtable.ConnMulti:
		u.multi(p, cmd, c)
	case commandtable.ConnWatch:
		u.watch(p, cmd, c)
	case commandtable.ConnBlock:
		u.block(p, cmd, c)
	case commandtable.ConnSubscribe:
		u.subscribe(cmd, c)
	case commandtable.ConnUnwatch:
		u.send(p, cmd, c)
		p.Wait()
		p.slots.unwatched()
	case commandtable.ConnAlone:
		if p = u.at(p, backend.NoSlot, c); p != nil {
			u.send(p, cmd, c)
		}
	default:
		return false
	}
	return true
}

// elsewhere says that a slot, if it is one, has another owner than n.
func (u *clustered) elsewhere(slot int, n *cluster.Node) bool {
	if slot == backend.NoSlot {
		return false
	}
	owner := u.nodes.Snapshot().Owner(slot)
	return owner != nil && owner != n
}

// watch is WATCH. All watched keys must be in one slot, whatever nodes there are, because only commands of that
// slot can be run in the transaction.
func (u *clustered) watch(p *conn, cmd redcon.Command, c *commandtable.Command) {
	slot, cross := u.forwarder.SlotOf(c, cmd.Args)
	before := backend.NoSlot // the slot of what is watched already
	if p != nil {
		before = p.slots.watched
	}
	if cross || differ(slot, before) {
		u.client.Error(commandtable.CrossSlot)
		return
	}
	forwarded()
	t := u.nodes.Tries(slot)
	u.follow(c, p, t, func(p *conn) (refusal []byte, r cluster.Refusal, err error) {
		ask := t.Ask || p.slots.ask
		refusal, over := p.try(&dedicated.Reply{Cmd: c, Kind: c.Conn, Args: len(cmd.Args) - 1}, cmd.Raw, ask)
		switch {
		case over:
		case len(refusal) == 0:
			p.slots.watched, p.slots.ask = slot, ask
		case before == backend.NoSlot: // else those keys have moved away: their transaction will find that out
			r = u.nodes.Refusal(p.Node, refusal)
		}
		return refusal, r, nil
	})
}

// block runs a command that may wait. When its slot moves away meanwhile, Redis ends the wait and has done nothing:
// the command is then sent to the slot's new node, as a client of a cluster would send it.
func (u *clustered) block(p *conn, cmd redcon.Command, c *commandtable.Command) {
	slot, cross := u.forwarder.SlotOf(c, cmd.Args)
	switch {
	case cross:
		u.client.Error(commandtable.CrossSlot)
		return
	case p != nil && u.elsewhere(slot, p.Node):
		u.client.Error(fmt.Sprintf(commandtable.CrossWatch, c.Title()))
		return
	}
	forwarded()
	t := u.nodes.Tries(slot)
	u.follow(c, p, t, func(p *conn) (refusal []byte, r cluster.Refusal, err error) {
		sent := time.Now()
		refusal, _ = p.try(&dedicated.Reply{Cmd: c, Kind: c.Conn,
			Wait: dedicated.Wait{Blocks: true, For: c.WaitsFor(cmd.Args)}}, cmd.Raw, t.Ask)
		t.Waited(sent)
		if p.slots.watched == backend.NoSlot {
			r = u.nodes.Refusal(p.Node, refusal)
		}
		return refusal, r, nil
	})
}

// sending runs a command on a connection of the client's own. answer is for the client, unless it has that already; r is
// why the command has not run; err is that the connection was lost before it was sent.
type sending func(*conn) (answer []byte, r cluster.Refusal, err error)

// follow has send run a command on p, or if that is nil on another connection of the client's own to where t says, and
// after each refusal that is worth it on one to where t says then. It answers the client.
func (u *clustered) follow(c *commandtable.Command, p *conn, t *cluster.Tries, send sending) {
	answer, err := u.followed(p, t, send)
	switch {
	case u.client.End.Over():
	case err != nil:
		u.Failed(c, err)
	default:
		u.client.Give(answer)
	}
}

// followed is follow, and returns the last answer, or the error in which the last try ended.
func (u *clustered) followed(p *conn, t *cluster.Tries, send sending) (answer []byte, err error) {
	for {
		if p == nil {
			if p, err = u.reach(t); err != nil {
				return nil, err
			}
		}
		answer, r, err := send(p)
		if !t.Again(u.client.Context(), r) {
			return answer, err
		}
		u.letGo()
		p = nil
	}
}

// reach gives the client a connection of its own to where t says, or to where it says then while there is none.
func (u *clustered) reach(t *cluster.Tries) (*conn, error) {
	for {
		p, err := u.connectFor(t, &u.View)
		if err == nil {
			u.conn = p
			return p, nil
		}
		if !t.Again(u.client.Context(), unreached(err)) {
			return nil, err
		}
	}
}

// at returns p, or if that is nil a new connection of the client's own to the node that has a slot. If it returns nil,
// the client has been given the error.
func (u *clustered) at(p *conn, slot int, c *commandtable.Command) *conn {
	if p != nil {
		return p
	}
	p, err := u.reach(u.nodes.Tries(slot))
	if err != nil {
		u.Failed(c, err)
	}
	return p
}

// letGo gives the client's own connection back, or closes it if Redis keeps state for it.
func (u *clustered) letGo() {
	if u.rest() != nil {
		u.drop()
	}
}

// try sends a command, after ASKING if ask, and returns an error reply of Redis' in place of giving it to the client.
// over: the connection is lost, or the client has gone. Without either the client has its reply.
func (p *conn) try(e *dedicated.Reply, raw []byte, ask bool) (refusal []byte, over bool) {
	var got []byte
	if ask {
		p.Own(&dedicated.Reply{}, asking)
	}
	e.Refusal = &got
	p.Send(e, raw)
	if !p.Wait() || e.Lost != nil {
		return nil, true
	}
	return got, false
}

var asking = resp.AppendCommand(nil, "ASKING")

// unreached is what an error for a connection means for the tries of a request: none if there can be no other
// connection.
func unreached(err error) cluster.Refusal {
	if client.NoFurther(err) {
		return cluster.Refusal{}
	}
	return cluster.Unreached
}

// connect gives the client a connection of its own to any node.
func (u *clustered) connect() (*conn, error) { return u.reach(u.nodes.Tries(backend.NoSlot)) }

// connectFor makes a connection to where t says.
func (u *clustered) connectFor(t *cluster.Tries, v *dedicated.View) (*conn, error) {
	n := t.To
	switch {
	case t.Slot() == backend.NoSlot:
		return u.connectAny(v)
	case n == nil:
		n = u.nodes.Snapshot().Owner(t.Slot())
	}
	if n == nil {
		return nil, &upstream.ReplyError{Line: "CLUSTERDOWN Hash slot not served"}
	}
	return u.connectAs(u.Context, u.client.Identity(), n, v)
}

// connectAny makes a connection to any master, for as long as that is not in trouble: to another one if it is not
// reached, or does not let the client's user in.
func (u *clustered) connectAny(v *dedicated.View) (p *conn, err error) {
	s := u.nodes.Snapshot()
	for passed := range s.Masters {
		n := s.Any(int(u.client.Number), passed)
		ctx, done := s.While(u.Context, n)
		p, err = u.connectAs(ctx, u.client.Identity(), n, v)
		done()
		switch {
		case err == nil, client.TooMany(err), client.LogIn(err):
			return p, err
		}
	}
	return p, err
}

// connectAs makes a connection to a node as id, which the client need not be any more.
func (u *clustered) connectAs(ctx context.Context, id upstream.Identity, n *cluster.Node, v *dedicated.View) (*conn, error) {
	u.nodes.Acquire(n)
	p, err := u.dial(ctx, id, n.Upstream(), n, v)
	if err != nil {
		u.nodes.Release(n)
	}
	return p, err
}

// masters has run use a connection to each master. It tries for as long as commands are retried on the cluster.
func (u *clustered) masters(id upstream.Identity, run func(conns) error) error {
	for t := u.nodes.Tries(backend.NoSlot); ; {
		all, err := u.connectAll(id)
		r := unreached(err)
		if err == nil {
			sent := time.Now()
			err = run(all)
			t.Waited(sent) // a master that is about to become a replica holds writes back for seconds
			r = u.nodes.RefusalIn(all[0].Node, err)
		}
		if !t.Again(u.client.Context(), r) {
			return err
		}
	}
}

// connectAll makes a connection to each master, or else none.
func (u *clustered) connectAll(id upstream.Identity) (all conns, err error) {
	for _, n := range u.nodes.Snapshot().Masters {
		p, err := u.connectAs(u.Context, id, n, new(dedicated.View))
		if err != nil {
			all.end()
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// Subscriptions have connections of their own.

// subscribe runs a command of the SUBSCRIBE family.
func (u *clustered) subscribe(cmd redcon.Command, c *commandtable.Command) {
	if u.subscriptions == nil {
		u.subscriptions = subscription.New(subscription.Config{Common: u.Common.Common, Host: subscriber{u}, Client: u.client,
			Nodes: u.nodes, View: &u.View, Spread: int(u.client.Number), Listeners: &u.Listeners})
	}
	forwarded()
	u.subscriptions.Run(cmd, c)
}

// sendMute handles a command of a subscriber in RESP2. Redis itself refuses what is not allowed. A command with keys is
// refused here, because Redis might answer it with a redirect.
func (u *clustered) sendMute(cmd redcon.Command, c *commandtable.Command, here bool) {
	switch {
	case c.Conn == commandtable.ConnSubscribe:
		u.subscribe(cmd, c)
	case isNoSubcommand(c, cmd), !here && u.keyless(cmd, c):
		if !u.subscriptions.Asks(cmd, c) {
			u.client.Fail(&upstream.NotSentError{Cause: dedicated.ErrGone})
		}
	default:
		refuseMute(u.client, cmd, c)
	}
}

// keyless says that a command, which is not about its connection, names no keys.
func (u *clustered) keyless(cmd redcon.Command, c *commandtable.Command) bool {
	return c == commandtable.Unlisted || c.Conn == commandtable.ConnNone && len(u.forwarder.KeysOf(c, cmd.Args, nil)) == 0
}

// subscriber gives a client's subscriptions their connections: see subscription.Host.
type subscriber struct{ u *clustered }

var _ subscription.Host = subscriber{}

// Connect implements subscription.Host.
func (h subscriber) Connect(ctx context.Context, id upstream.Identity, at *cluster.Node) (subscription.Link, error) {
	p, err := h.u.connectAs(ctx, id, at, new(dedicated.View))
	if err != nil {
		return subscription.Link{}, err
	}
	relay := func(cmd redcon.Command, c *commandtable.Command) { h.u.send(p, cmd, c) }
	return subscription.Link{Conn: p.Conn, Relay: relay, Rest: p.giveBack, End: p.drop}, nil
}
