package session

import (
	"bytes"
	"context"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// dedicatedSlots is what a connection of a session's own has to do with slots.
type dedicatedSlots struct {
	watched int          // the slot of what is watched, or noSlot; the session's goroutine only
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
func (s *Session) openDedicatedAt(n *cluster.Node) (*dedicatedConn, error) {
	p, err := s.connectAt(n, &s.own.view)
	if err == nil {
		s.own.dedicated = p
	}
	return p, err
}

// connectAt is connect at a node of the cluster.
func (s *Session) connectAt(n *cluster.Node, v *dedicated.View) (*dedicatedConn, error) {
	if err := s.refused(); err != nil {
		return nil, err
	}
	return s.connectAs(s.srv.ctx, s.ident, n, v)
}

// connectAs is connectAt as somebody who need not be the client any more.
func (s *Session) connectAs(ctx context.Context, id upstream.Identity, n *cluster.Node, v *dedicated.View) (*dedicatedConn, error) {
	s.srv.o.Cluster.Acquire(n)
	p, err := s.connect(ctx, id, n.Upstream(), n, v)
	if err != nil {
		s.srv.o.Cluster.Release(n)
	}
	return p, err
}

// openDedicatedForSlot gives the session a connection of its own at the node that has a slot; noSlot: at any.
func (s *Session) openDedicatedForSlot(slot int) (*dedicatedConn, error) {
	p, err := s.connectSlot(slot, &s.own.view)
	if err == nil {
		s.own.dedicated = p
	}
	return p, err
}

// connectSlot is connect at the node that has a slot; noSlot: at any. It tries as long as the cluster does.
func (s *Session) connectSlot(slot int, v *dedicated.View) (*dedicatedConn, error) {
	c := s.srv.o.Cluster
	refused := 0 // masters that do not let this client's user in, of which any would do
	for until := time.Now().Add(c.RetryFor()); ; {
		snapshot, err := c.Snapshot(), error(&upstream.ReplyError{Line: "CLUSTERDOWN Hash slot not served"})
		n := snapshot.Any(int(s.peer.id) + refused)
		if slot != noSlot {
			n = snapshot.Owner(slot)
		}
		if n != nil {
			var p *dedicatedConn
			if p, err = s.connectAt(n, v); err == nil {
				return p, nil
			}
		}
		if passwordRefused(err) && slot == noSlot && refused+1 < len(snapshot.Masters) {
			refused++
			continue
		}
		if time.Now().After(until) || s.guard.Over() || s.srv.ctx.Err() != nil || isFinal(err) {
			return nil, err
		}
		s.lookAgain()
	}
}

// lookAgain waits for a fresh look at the topology, and a little.
func (s *Session) lookAgain() {
	ctx, done := s.clientContext()
	defer done()
	s.srv.o.Cluster.Refreshed(ctx)
	retry.Sleep(s.srv.ctx, slotPause, ctx.Done())
}

// dedicatedFor is p, or in place of nil a connection at the node that has a slot. With nil the client has been told why.
func (s *Session) dedicatedFor(p *dedicatedConn, slot int, c *commandtable.Command) *dedicatedConn {
	if p != nil {
		return p
	}
	p, err := s.openDedicatedForSlot(slot)
	if err != nil {
		s.dedicatedFailed(c, err)
		return nil
	}
	return p
}

// moveDedicated gives p up for a connection where reply, its node's redirect, says. With nil the client has been told why.
func (s *Session) moveDedicated(p *dedicatedConn, reply []byte, slot int, c *commandtable.Command) (to *dedicatedConn, ask bool) {
	from := p.Node
	s.closeUnusedDedicated()
	to, ask, err := s.openDedicatedInstead(reply, slot, from)
	if err != nil {
		s.dedicatedFailed(c, err)
		return nil, false
	}
	return to, ask
}

// openDedicatedInstead is openDedicatedForSlot, or where reply, a redirect by the node from, says. ask: ASKING must go ahead there.
func (s *Session) openDedicatedInstead(reply []byte, slot int, from *cluster.Node) (p *dedicatedConn, ask bool, err error) {
	if to, ask, ok := s.srv.o.Cluster.Redirect(reply, slot, from); ok && to != nil {
		if p, err = s.openDedicatedAt(to); err == nil {
			return p, ask, nil
		}
	}
	s.lookAgain()
	p, err = s.openDedicatedForSlot(slot)
	return p, false, err
}

// closeUnusedDedicated gives the session's own connection back, or closes it when Redis keeps something for it there.
func (s *Session) closeUnusedDedicated() {
	s.release()
	if s.currentDedicated() != nil {
		s.dropDedicated()
	}
}

// isFinal says that to try again would not help.
func isFinal(err error) bool { return passwordRefused(err) || needsAuth(err) || tooManyUpstream(err) }

// runDedicatedNodes has a command run that concerns the connection, or may wait. p is the session's own, nil if it has none.
func (s *Session) runDedicatedNodes(p *dedicatedConn, cmd redcon.Command, c *commandtable.Command) {
	if p != nil && !p.Settled() {
		return
	}
	defer s.release()
	switch c.Conn {
	case commandtable.ConnMulti:
		s.multiNodes(p, cmd, c)
	case commandtable.ConnWatch:
		s.watchNodes(p, cmd, c)
	case commandtable.ConnBlock:
		s.blockNodes(p, cmd, c)
	case commandtable.ConnSubscribe:
		s.subscribeNodes(cmd, c)
	case commandtable.ConnUnwatch:
		s.unwatchNodes(p, cmd, c)
	case commandtable.ConnAlone:
		s.runDedicated(p, cmd, c, nil)
	default: // EXEC and DISCARD without MULTI
		s.enqueue(cmd.Raw, cmd.Args, c)
	}
}

func upper(c *commandtable.Command) string { return string(bytes.ToUpper([]byte(c.Name))) }

// unwatchNodes is UNWATCH outside of a transaction.
func (s *Session) unwatchNodes(p *dedicatedConn, cmd redcon.Command, c *commandtable.Command) {
	if p == nil {
		s.enqueue(cmd.Raw, cmd.Args, c)
		return
	}
	s.send(p, cmd, c)
	p.Settled()
	p.slots.watched, p.slots.ask = noSlot, false
}

// watchNodes is WATCH: what is watched is in one slot, whatever nodes there are, since only commands of that slot can be
// run under it.
func (s *Session) watchNodes(p *dedicatedConn, cmd redcon.Command, c *commandtable.Command) {
	slot, cross := s.slotOf(c, cmd.Args)
	watching := p != nil && p.slots.watched != noSlot && s.own.view.Watch.Load()
	if cross || watching && slot != noSlot && slot != p.slots.watched {
		s.error(crossSlot)
		return
	}
	if p = s.dedicatedFor(p, slot, c); p == nil {
		return
	}
	for until := time.Now().Add(s.srv.o.Cluster.RetryFor()); ; {
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
			s.batch.out = append(s.batch.out, refusal...)
			return
		}
		ask := false
		if p, ask = s.moveDedicated(p, refusal, slot, c); p == nil {
			return
		}
		p.slots.ask = ask
	}
}

// blockNodes has a command run that may wait. When its slot moves away meanwhile, Redis says so and has done nothing: it
// is then sent again, for the time left, to the slot's new node.
func (s *Session) blockNodes(p *dedicatedConn, cmd redcon.Command, c *commandtable.Command) {
	slot, cross := s.slotOf(c, cmd.Args)
	switch {
	case cross:
		s.error(crossSlot)
		return
	case p != nil && slot != noSlot && s.srv.o.Cluster.Snapshot().Owner(slot) != p.Node:
		s.error("ERR " + upper(c) + " on a connection that watches another node's keys: use another connection, or UNWATCH first")
		return
	}
	if p = s.dedicatedFor(p, slot, c); p == nil {
		return
	}
	began, raw, ask := time.Now(), cmd.Raw, false
	var redirectedSince time.Time
	for {
		var refusal []byte
		if ask {
			p.Own(&dedicated.Reply{}, asking)
		}
		e := &dedicated.Reply{Cmd: c, Kind: c.Conn, Wait: dedicated.Wait{Blocks: true, For: waitsFor(c, cmd.Args)}, Refusal: &refusal}
		sent := time.Now()
		p.Send(e, raw)
		if !p.Settled() || e.Lost != nil || len(refusal) == 0 {
			return
		}
		if now := time.Now(); redirectedSince.IsZero() || now.Sub(sent) > time.Second { // it has waited in peace
			redirectedSince = now
		}
		follow := slot != noSlot && p.slots.watched == noSlot && (dedicated.IsRedirect(refusal) || bytes.HasPrefix(refusal, unblockedByChange))
		if !follow || time.Since(redirectedSince) > s.srv.o.Cluster.RetryFor() {
			s.batch.out = append(s.batch.out, refusal...)
			return
		}
		if p, ask = s.moveDedicated(p, refusal, slot, c); p == nil {
			return
		}
		raw = timeLeft(c, cmd.Args, time.Since(began))
	}
}
