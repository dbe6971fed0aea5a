package session

import (
	"slices"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Confirmed implements dedicated.Interceptor. The confirmation of the client's own command is passed on. That of a
// subscription made again is not, and the end of one that nobody asked for, by which Redis tells that its slot has left, has
// it made again.
func (c *subscriptionConn) Confirmed(frame []byte, e *dedicated.Reply, proto int, out []byte) (told []byte, asked bool) {
	asked = e != nil && e.Kind == commandtable.ConnSubscribe
	if c.events { // the client is told by its ordinary connection for subscriptions
		return out, asked
	}
	r, ok := resp.ParseReply(frame)
	if !ok || len(r.Elems) != 3 {
		return out, false
	}
	x, verb := c.x, string(r.Elems[0].Text)
	sub, ends := dedicated.SubscriptionIn(r.Elems)
	asked = asked && e.Cmd.Name == verb && slices.Contains(e.Names, sub.Name)
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case ends && asked:
		delete(x.where, sub)
	case ends:
		x.lose(sub, c)
	case asked && !e.Own:
		x.where[sub] = c
	default:
		if at, wanted := x.where[sub]; wanted && at == nil {
			x.where[sub] = c
			x.s.srv.subscribed.resubscribed.Add(1)
		}
	}
	if x.where[sub] != nil || ends && asked {
		delete(x.lost, sub)
	}
	x.count()
	if asked && !e.Own {
		out = x.confirm(out, proto, verb, sub.Kind, r.Elems[1].Text)
	}
	return out, asked
}

// lose has a subscription made again, if it was on that connection. mu is held.
func (x *subscriptions) lose(sub dedicated.Subscription, was *subscriptionConn) {
	if at, wanted := x.where[sub]; !wanted || at != was {
		return
	}
	x.where[sub] = nil
	x.lost[sub] = was.id
	x.wakeMaker()
}

// Ended implements dedicated.Interceptor: all that was subscribed to there is made again.
func (c *subscriptionConn) Ended() {
	x := c.x
	if v := x.events.Load(); v != nil && c.events {
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
		if at == c {
			x.lose(sub, c)
			heard = true
		}
	}
	if heard {
		x.dead = append(x.dead, c)
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
