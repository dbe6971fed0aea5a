package session

import (
	"slices"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// confirmed takes a confirmation that a connection for subscriptions has got; dedicated.mu is held, here and below. That of the client's own command
// is passed on. That of a subscription made again is not, and the end of one that nobody asked for, by which Redis tells
// that its slot has left, has it made again.
func (p *dedicated) subscriptionConfirmed(frame []byte) {
	p.state.confirmed(frame)
	if p.subscriptionConn.events { // the client is told by its ordinary connection for subscriptions
		if e := p.oldest(); e != nil && e.kind == commandtable.ConnSubscribe {
			if e.left--; e.left == 0 {
				p.popPending()
			}
		}
		return
	}
	r, ok := resp.ParseReply(frame)
	if !ok || len(r.Elems) != 3 {
		return
	}
	verb, name, x := string(r.Elems[0].Text), r.Elems[1].Text, p.subscriptions
	ends := slices.Index(unsubscribeVerbs[:], verb)
	sub := subscription{subscriptionKind(max(ends, slices.Index(subscribeVerbs[:], verb))), string(name)}
	e := p.oldest()
	asked := e != nil && e.kind == commandtable.ConnSubscribe && e.cmd.Name == verb && slices.Contains(e.names, sub.name)
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case ends >= 0 && asked:
		delete(x.where, sub)
	case ends >= 0:
		x.lose(sub, p.subscriptionConn)
	case asked && !e.own:
		x.where[sub] = p.subscriptionConn
	default:
		if at, wanted := x.where[sub]; wanted && at == nil {
			x.where[sub] = p.subscriptionConn
			x.s.srv.resubscribed.Add(1)
		}
	}
	if x.where[sub] != nil || ends >= 0 && asked {
		delete(x.lost, sub)
	}
	x.count()
	if !asked {
		return
	}
	if !e.own {
		p.out = x.confirm(p.out, p.state.proto, verb, sub.kind, name)
		p.whole = len(p.out)
	}
	if e.left--; e.left == 0 {
		p.popPending()
	}
}

// lose has a subscription made again, if it was on that connection. mu is held.
func (x *subscriptions) lose(sub subscription, was *subscriptionConn) {
	if at, wanted := x.where[sub]; !wanted || at != was {
		return
	}
	x.where[sub] = nil
	x.lost[sub] = was.id
	x.wakeMaker()
}

// subscriptionConnEnded has all that was subscribed to on a lost connection made again; false: nothing was. dedicated.mu is held.
func (p *dedicated) subscriptionConnEnded() {
	x := p.subscriptions
	if v := x.events.Load(); v != nil && p.subscriptionConn.events {
		v.wake()
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return
	}
	heard := false
	for sub, at := range x.where {
		if at == p.subscriptionConn {
			x.lose(sub, p.subscriptionConn)
			heard = true
		}
	}
	if heard {
		x.dead = append(x.dead, p.subscriptionConn)
	}
}

// wakeMaker starts the goroutine that makes subscriptions again, unless it is there. mu is held.
func (x *subscriptions) wakeMaker() {
	if x.maker == nil && !x.over {
		x.maker = make(chan struct{})
		go x.resubscribe(x.maker)
	}
}

// cutOff closes a client whose subscriptions cannot be made again, as Redis would have closed it.
func (x *subscriptions) cutOff(why string) {
	x.s.guard.Cut(downstream.Left, why)
}

// hello has all connections speak another protocol.
func (x *subscriptions) hello(id upstream.Identity) (err error) {
	if x == nil || !x.take() {
		return nil
	}
	defer x.giveTurn()
	for _, e := range x.live() {
		if failed := x.s.helloDedicated(e.p, id, false); failed != nil {
			err = failed
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.all {
		e.id.Proto = id.Proto
	}
	for sub, as := range x.lost {
		as.Proto = id.Proto
		x.lost[sub] = as
	}
	return err
}
