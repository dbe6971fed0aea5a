package own

import (
	"bytes"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/subscription"
	"github.com/lockproxy/lockproxy/upstream"
)

// clustered gives a client connections of its own at the nodes of a cluster. A connection leads to one node, so only the commands that
// need it are sent there. All others are forwarded as usual, after the replies that are pending on it have come.
type clustered struct {
	*Connections
	nodes         *backend.Clustered
	subscriptions *subscription.Subscriptions // nil: none yet
}

// databases is false, although the nodes may have more: see backend's selectDB.
func (u *clustered) databases() bool { return false }

func (u *clustered) left(n *cluster.Node) { u.nodes.Release(n) }

// helloSubscriptions has the connections that the client's subscriptions have speak another protocol.
func (u *clustered) helloSubscriptions(id upstream.Identity) { u.subscriptions.Hello(id) }

// dropSubscriptions ends all subscriptions of the client.
func (u *clustered) dropSubscriptions() {
	if x := u.subscriptions; x != nil {
		u.subscriptions = nil
		x.Close()
	}
}

// concerns is for subscribers in RESP2, who may not send what they like.
func (u *clustered) concerns(c *commandtable.Command, _ bool) bool { return u.mute() && !c.Always }

// mute says that the client is a subscriber in RESP2.
func (u *clustered) mute() bool { return u.client.Identity().Proto == 2 && u.View.Subscribed() }

func (u *clustered) run(p *conn, cmd redcon.Command, c *commandtable.Command, here bool) (taken bool) {
	switch {
	case p != nil && p.InTransaction():
		return u.inTransaction(p, cmd, c, here)
	case u.concerns(c, here):
		u.sendMute(cmd, c, here)
		return true
	case u.forwarder.Instead(c) != nil: // it concerns all nodes
	case c.Conn.Starts(), p != nil && c.Conn != commandtable.ConnNone:
		return u.runOwn(p, cmd, c)
	}
	return p != nil && !p.Settled()
}

// runOwn runs a command that concerns the connection, or may wait. p is the client's own connection, nil if it has none.
func (u *clustered) runOwn(p *conn, cmd redcon.Command, c *commandtable.Command) (taken bool) {
	if p != nil && !p.Settled() {
		return true
	}
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
		if p == nil {
			return false
		}
		u.send(p, cmd, c)
		p.Settled()
		p.slots.watched, p.slots.ask = backend.NoSlot, false
	case commandtable.ConnAlone:
		if p = u.at(p, backend.NoSlot, c); p != nil {
			u.send(p, cmd, c)
		}
	default: // EXEC and DISCARD without MULTI
		return false
	}
	return true
}

// sendMute handles a command of a subscriber in RESP2. Redis itself refuses what is not allowed. A command with keys is
// refused here, because Redis might answer it with a redirect.
func (u *clustered) sendMute(cmd redcon.Command, c *commandtable.Command, here bool) {
	switch {
	case c.Conn == commandtable.ConnSubscribe:
		u.subscribe(cmd, c)
	case c.Subs != nil && len(cmd.Args) > 1, // a subcommand that is none
		!here && (c == commandtable.Unlisted || len(u.forwarder.KeysOf(c, cmd.Args, nil)) == 0 && c.Conn == commandtable.ConnNone):
		if !u.subscriptions.Asks(cmd, c) {
			u.client.Fail(&upstream.NotSentError{Cause: dedicated.ErrGone})
		}
	default:
		u.refuseMute(cmd, c)
	}
}

// watch is WATCH. All watched keys must be in one slot, whatever nodes there are, because only commands of that
// slot can be run in the transaction.
func (u *clustered) watch(p *conn, cmd redcon.Command, c *commandtable.Command) {
	slot, cross := u.forwarder.SlotOf(c, cmd.Args)
	watching := p != nil && p.slots.watched != backend.NoSlot && u.View.Watch.Load()
	if cross || watching && slot != backend.NoSlot && slot != p.slots.watched {
		u.client.Error(cluster.CrossSlot)
		return
	}
	if p = u.at(p, slot, c); p == nil {
		return
	}
	forwarded()
	for until := time.Now().Add(u.nodes.RetryFor()); ; {
		e := &dedicated.Reply{Cmd: c, Kind: c.Conn, Args: len(cmd.Args) - 1}
		refusal, over := p.try(e, cmd.Raw, p.slots.ask)
		if over {
			return
		}
		if len(refusal) == 0 {
			p.slots.watched = slot
			return
		}
		if !dedicated.IsRedirect(refusal) || watching || time.Now().After(until) {
			// Keys that were watched before have moved away: their transaction will find that out.
			u.client.Give(refusal)
			return
		}
		ask := false
		if p, ask = u.move(p, refusal, slot, c); p == nil {
			return
		}
		p.slots.ask = ask
	}
}

// unblockedByChange is the error with which Redis ends its clients' waits when it is no longer a master.
var unblockedByChange = []byte("-UNBLOCKED force unblock from blocking operation, instance state changed")

// block runs a command that may wait. When its slot moves away meanwhile, Redis ends the wait and has done nothing:
// the command is then sent to the slot's new node, for the time left.
func (u *clustered) block(p *conn, cmd redcon.Command, c *commandtable.Command) {
	slot, cross := u.forwarder.SlotOf(c, cmd.Args)
	switch {
	case cross:
		u.client.Error(cluster.CrossSlot)
		return
	case p != nil && slot != backend.NoSlot && u.nodes.Snapshot().Owner(slot) != p.Node:
		u.client.Error("ERR " + string(bytes.ToUpper([]byte(c.Name))) + " on a connection that watches another node's keys: use another connection, or UNWATCH first")
		return
	}
	if p = u.at(p, slot, c); p == nil {
		return
	}
	forwarded()
	began, raw, ask := time.Now(), cmd.Raw, false
	var redirectedSince time.Time
	for {
		sent := time.Now()
		refusal, over := p.try(&dedicated.Reply{Cmd: c, Kind: c.Conn, Wait: dedicated.Wait{Blocks: true, For: c.WaitsFor(cmd.Args)}}, raw, ask)
		if over || len(refusal) == 0 {
			return
		}
		if now := time.Now(); redirectedSince.IsZero() || now.Sub(sent) > time.Second { // this redirect came after a wait: it begins a new series
			redirectedSince = now
		}
		follow := slot != backend.NoSlot && p.slots.watched == backend.NoSlot && (dedicated.IsRedirect(refusal) || bytes.HasPrefix(refusal, unblockedByChange))
		if !follow || time.Since(redirectedSince) > u.nodes.RetryFor() {
			u.client.Give(refusal)
			return
		}
		if p, ask = u.move(p, refusal, slot, c); p == nil {
			return
		}
		raw = c.TimeLeft(cmd.Args, time.Since(began))
	}
}
