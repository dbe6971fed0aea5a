package session

import (
	"bytes"
	"context"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// dedicatedSlots is what a connection of a session's own has to do with slots.
type dedicatedSlots struct {
	watched int          // the slot of what is watched, or backend.NoSlot; the session's goroutine only
	ask     bool         // the node is importing that slot: MULTI goes behind ASKING; the session's goroutine only
	tx      *transaction // the one that is queued; the session's goroutine only
}

const slotPause = 20 * time.Millisecond // before a node is tried again

var (
	asking = resp.AppendCommand(nil, "ASKING")
)

// unblockedByChange is how Redis ends the wait of those that wait at a master which is none any more.
var unblockedByChange = []byte("-UNBLOCKED force unblock from blocking operation, instance state changed")

// openDedicatedAt gives the session a connection of its own at a node.
func (u *clustered) openDedicatedAt(n *cluster.Node) (*dedicatedConn, error) {
	p, err := u.connectAt(n, &u.s.own.view)
	if err == nil {
		u.s.own.dedicated = p
	}
	return p, err
}

// connectAt is connect at a node of the cluster.
func (u *clustered) connectAt(n *cluster.Node, v *dedicated.View) (*dedicatedConn, error) {
	if err := u.s.refused(); err != nil {
		return nil, err
	}
	return u.connectAs(u.s.srv.ctx, u.s.ident, n, v)
}

// connectAs is connectAt as somebody who need not be the client any more.
func (u *clustered) connectAs(ctx context.Context, id upstream.Identity, n *cluster.Node, v *dedicated.View) (*dedicatedConn, error) {
	u.nodes.Acquire(n)
	p, err := u.s.connect(ctx, id, n.Upstream(), n, v)
	if err != nil {
		u.nodes.Release(n)
	}
	return p, err
}

// openDedicatedForSlot gives the session a connection of its own at the node that has a slot; backend.NoSlot: at any.
func (u *clustered) openDedicatedForSlot(slot int) (*dedicatedConn, error) {
	p, err := u.connectSlot(slot, &u.s.own.view)
	if err == nil {
		u.s.own.dedicated = p
	}
	return p, err
}

// connectSlot is connect at the node that has a slot; backend.NoSlot: at any. It tries as long as the cluster does.
func (u *clustered) connectSlot(slot int, v *dedicated.View) (*dedicatedConn, error) {
	c := u.nodes
	refused := 0 // masters that do not let this client's user in, of which any would do
	for until := time.Now().Add(c.RetryFor()); ; {
		snapshot, err := c.Snapshot(), error(&upstream.ReplyError{Line: "CLUSTERDOWN Hash slot not served"})
		n := snapshot.Any(int(u.s.peer.id) + refused)
		if slot != backend.NoSlot {
			n = snapshot.Owner(slot)
		}
		if n != nil {
			var p *dedicatedConn
			if p, err = u.connectAt(n, v); err == nil {
				return p, nil
			}
		}
		if backend.PasswordRefused(err) && slot == backend.NoSlot && refused+1 < len(snapshot.Masters) {
			refused++
			continue
		}
		if time.Now().After(until) || u.s.guard.Over() || u.s.srv.ctx.Err() != nil || backend.NoRetry(err) {
			return nil, err
		}
		u.lookAgain()
	}
}

// lookAgain waits for a fresh look at the topology, and a little.
func (u *clustered) lookAgain() {
	ctx, done := u.s.clientContext()
	defer done()
	u.nodes.Refreshed(ctx)
	retry.Sleep(u.s.srv.ctx, slotPause, ctx.Done())
}

// dedicatedFor is p, or in place of nil a connection at the node that has a slot. With nil the client has been told why.
func (u *clustered) dedicatedFor(p *dedicatedConn, slot int, c *commandtable.Command) *dedicatedConn {
	if p != nil {
		return p
	}
	p, err := u.openDedicatedForSlot(slot)
	if err != nil {
		u.s.dedicatedFailed(c, err)
		return nil
	}
	return p
}

// moveDedicated gives p up for a connection where reply, its node's redirect, says. With nil the client has been told why.
func (u *clustered) moveDedicated(p *dedicatedConn, reply []byte, slot int, c *commandtable.Command) (to *dedicatedConn, ask bool) {
	from := p.Node
	u.closeUnusedDedicated()
	to, ask, err := u.openDedicatedInstead(reply, slot, from)
	if err != nil {
		u.s.dedicatedFailed(c, err)
		return nil, false
	}
	return to, ask
}

// openDedicatedInstead is openDedicatedForSlot, or where reply, a redirect by the node from, says. ask: ASKING must go ahead there.
func (u *clustered) openDedicatedInstead(reply []byte, slot int, from *cluster.Node) (p *dedicatedConn, ask bool, err error) {
	if to, ask, ok := u.nodes.Redirect(reply, slot, from); ok && to != nil {
		if p, err = u.openDedicatedAt(to); err == nil {
			return p, ask, nil
		}
	}
	u.lookAgain()
	p, err = u.openDedicatedForSlot(slot)
	return p, false, err
}

// closeUnusedDedicated gives the session's own connection back, or closes it when Redis keeps something for it there.
func (u *clustered) closeUnusedDedicated() {
	u.s.release()
	if u.s.currentDedicated() != nil {
		u.s.dropDedicated()
	}
}

// runDedicatedNodes has a command run that concerns the connection, or may wait. p is the session's own, nil if it has none.
func (u *clustered) runDedicated(p *dedicatedConn, cmd redcon.Command, c *commandtable.Command) {
	if p != nil && !p.Settled() {
		return
	}
	defer u.s.release()
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
		u.unwatch(p, cmd, c)
	case commandtable.ConnAlone:
		u.s.runDedicated(p, cmd, c, nil)
	default: // EXEC and DISCARD without MULTI
		u.s.enqueue(cmd.Raw, cmd.Args, c)
	}
}

func upper(c *commandtable.Command) string { return string(bytes.ToUpper([]byte(c.Name))) }

// unwatch is UNWATCH outside of a transaction.
func (u *clustered) unwatch(p *dedicatedConn, cmd redcon.Command, c *commandtable.Command) {
	if p == nil {
		u.s.enqueue(cmd.Raw, cmd.Args, c)
		return
	}
	u.s.send(p, cmd, c)
	p.Settled()
	p.slots.watched, p.slots.ask = backend.NoSlot, false
}

// watch is WATCH: what is watched is in one slot, whatever nodes there are, since only commands of that slot can be
// run under it.
func (u *clustered) watch(p *dedicatedConn, cmd redcon.Command, c *commandtable.Command) {
	slot, cross := u.s.pipes.SlotOf(c, cmd.Args)
	watching := p != nil && p.slots.watched != backend.NoSlot && u.s.own.view.Watch.Load()
	if cross || watching && slot != backend.NoSlot && slot != p.slots.watched {
		u.s.error(crossSlot)
		return
	}
	if p = u.dedicatedFor(p, slot, c); p == nil {
		return
	}
	for until := time.Now().Add(u.nodes.RetryFor()); ; {
		var refusal []byte
		if p.slots.ask {
			p.Own(&dedicated.Reply{}, asking)
		}
		e := &dedicated.Reply{Cmd: c, Kind: c.Conn, Args: len(cmd.Args) - 1, Refusal: &refusal}
		p.Send(e, cmd.Raw)
		if !p.Settled() || e.Lost != nil {
			return
		}
		if len(refusal) == 0 {
			p.slots.watched = slot
			return
		}
		if !dedicated.IsRedirect(refusal) || watching || time.Now().After(until) {
			// What was watched before has moved away: its transaction will find that out.
			u.s.batch.Out = append(u.s.batch.Out, refusal...)
			return
		}
		ask := false
		if p, ask = u.moveDedicated(p, refusal, slot, c); p == nil {
			return
		}
		p.slots.ask = ask
	}
}

// blockNodes has a command run that may wait. When its slot moves away meanwhile, Redis says so and has done nothing: it
// is then sent again, for the time left, to the slot's new node.
func (u *clustered) block(p *dedicatedConn, cmd redcon.Command, c *commandtable.Command) {
	slot, cross := u.s.pipes.SlotOf(c, cmd.Args)
	switch {
	case cross:
		u.s.error(crossSlot)
		return
	case p != nil && slot != backend.NoSlot && u.nodes.Snapshot().Owner(slot) != p.Node:
		u.s.error("ERR " + upper(c) + " on a connection that watches another node's keys: use another connection, or UNWATCH first")
		return
	}
	if p = u.dedicatedFor(p, slot, c); p == nil {
		return
	}
	began, raw, ask := time.Now(), cmd.Raw, false
	var redirectedSince time.Time
	for {
		var refusal []byte
		if ask {
			p.Own(&dedicated.Reply{}, asking)
		}
		e := &dedicated.Reply{Cmd: c, Kind: c.Conn, Wait: dedicated.Wait{Blocks: true, For: c.WaitsFor(cmd.Args)}, Refusal: &refusal}
		sent := time.Now()
		p.Send(e, raw)
		if !p.Settled() || e.Lost != nil || len(refusal) == 0 {
			return
		}
		if now := time.Now(); redirectedSince.IsZero() || now.Sub(sent) > time.Second { // it has waited in peace
			redirectedSince = now
		}
		follow := slot != backend.NoSlot && p.slots.watched == backend.NoSlot && (dedicated.IsRedirect(refusal) || bytes.HasPrefix(refusal, unblockedByChange))
		if !follow || time.Since(redirectedSince) > u.nodes.RetryFor() {
			u.s.batch.Out = append(u.s.batch.Out, refusal...)
			return
		}
		if p, ask = u.moveDedicated(p, refusal, slot, c); p == nil {
			return
		}
		raw = c.TimeLeft(cmd.Args, time.Since(began))
	}
}
