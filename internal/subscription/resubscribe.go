package subscription

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	remakePause = 100 * time.Millisecond // between tries
	remakeFor   = 30 * time.Second       // a subscription that is not made again by then has its client closed, if that holds no lock
	remakeStep  = 2 * time.Second        // for one node's answer
)

var errNotServed = errors.New("hash slot not served")

// resubscribe is the goroutine that makes lost subscriptions again. It ends when there are none, or the session.
func (x *Subscriptions) resubscribe(gone chan<- struct{}) {
	defer close(gone)
	began := time.Now()
	for {
		lost, dead := x.lostNow()
		if len(lost) == 0 || x.ctx.Err() != nil {
			return
		}
		for _, e := range dead {
			if x.Host.Lockless() && x.deliberate(e) {
				x.cutOff("its connection upstream was closed")
				return
			}
		}
		if time.Since(began) > remakeFor && x.Host.Lockless() {
			x.cutOff("its subscriptions could not be made again")
			return
		}
		if !x.take() {
			return
		}
		for as, subs := range byIdentity(lost) {
			x.resubscribeAll(as, subs)
		}
		x.giveTurn()
		left := x.left()
		if left < len(lost) {
			began = time.Now()
		}
		if left > 0 {
			x.Nodes.Refreshed(x.ctx)
			retry.Sleep(x.Context, remakePause, x.ctx.Done())
		}
	}
}

// lostNow is what is to be made again. When that is nothing the goroutine ends: whoever loses something starts another.
func (x *Subscriptions) lostNow() (lost map[dedicated.Subscription]upstream.Identity, dead []*subscriptionConn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.lost) == 0 {
		x.maker = nil
	}
	dead, x.dead = x.dead, nil
	return maps.Clone(x.lost), dead
}

func (x *Subscriptions) left() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.lost)
}

func byIdentity(lost map[dedicated.Subscription]upstream.Identity) map[upstream.Identity][]dedicated.Subscription {
	all := map[upstream.Identity][]dedicated.Subscription{}
	for sub, id := range lost {
		all[id] = append(all[id], sub)
	}
	return all
}

// deliberate says that the node of a lost connection is as it was: Redis has closed the connection, as it closes those that
// are killed, or do not read. A node that has died, or was restarted, closes all.
func (x *Subscriptions) deliberate(e *subscriptionConn) bool {
	n := e.p.Node
	ctx, cancel := context.WithTimeout(x.ctx, remakeStep)
	defer cancel()
	service := x.Service
	service.DB, service.Proto = 0, 2
	answer, err := backend.Ask(ctx, n.Upstream(), service, "INFO", "server")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(answer), "\nuptime_in_seconds:")
	digits, _, _ := strings.Cut(rest, "\r")
	if up, err := strconv.Atoi(digits); err == nil {
		return time.Duration(up+2)*time.Second >= time.Since(e.since)
	}
	return !strings.HasPrefix(string(answer), "-LOADING ")
}

// resubscribeAll makes subscriptions again, each slot's at its node. x has the turn.
func (x *Subscriptions) resubscribeAll(as upstream.Identity, subs []dedicated.Subscription) {
	type group struct {
		kind dedicated.SubscriptionKind
		slot int
	}
	groups := map[group][]string{}
	for _, sub := range subs {
		g := group{sub.Kind, noSlot}
		if sub.Kind == dedicated.OfShard {
			g.slot = cluster.Slot([]byte(sub.Name))
		}
		groups[g] = append(groups[g], sub.Name)
	}
	for g, names := range groups {
		var to *cluster.Node
		for range 3 { // redirects
			at := to
			if at == nil {
				at = x.home(g.slot)
			}
			if to = x.resubscribeAt(as, g.kind, g.slot, names, at); to == nil {
				break
			}
		}
	}
}

// resubscribeAt makes subscriptions of one slot again at a node, and returns another node if that says so.
func (x *Subscriptions) resubscribeAt(as upstream.Identity, kind dedicated.SubscriptionKind, slot int, names []string, at *cluster.Node) (to *cluster.Node) {
	if at == nil {
		return nil
	}
	e, err := x.open(as, kind == dedicated.OfShard, at)
	if err != nil {
		if backend.PasswordRefused(err) {
			x.cutOff("its subscriptions could not be made again: " + err.Error())
		}
		return nil
	}
	defer e.rest()
	verb := dedicated.SubscribeVerbs[kind]
	cmd := x.Host.Find(verb)
	var got []byte
	o := &dedicated.Reply{Cmd: cmd, Kind: commandtable.ConnSubscribe, Own: true, Got: &got, Names: names}
	if !x.call(e.p, o, resp.AppendCommand(nil, append([]string{verb}, names...)...)) || len(got) == 0 {
		return nil
	}
	if to, ask, ok := x.Nodes.Redirect(got, slot, e.p.Node); ok && !ask {
		return to
	}
	if line, bad := resp.ErrorLine(got); bad && (strings.HasPrefix(line, "NOPERM ") || strings.HasPrefix(line, "NOAUTH ")) {
		x.cutOff("its subscriptions could not be made again: " + line)
	}
	return nil
}

// call sends a command of the proxy's own on a connection for subscriptions and waits for its reply, past the session's goroutine. If the node
// does not answer, the connection is closed.
func (x *Subscriptions) call(p Link, e *dedicated.Reply, raw []byte) bool {
	ctx, cancel := context.WithTimeout(x.ctx, remakeStep)
	defer cancel()
	if p.Exchange(ctx, e, raw) {
		return true
	}
	p.Lose()
	return false
}

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
			x.Nodes.Resubscribed.Add(1)
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
func (x *Subscriptions) lose(sub dedicated.Subscription, was *subscriptionConn) {
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
func (x *Subscriptions) wakeMaker() {
	if x.maker == nil && !x.over {
		x.maker = make(chan struct{})
		go x.resubscribe(x.maker)
	}
}

// cutOff closes a client whose subscriptions cannot be made again, as Redis would have closed it.
func (x *Subscriptions) cutOff(why string) {
	x.Client.Cut(downstream.Left, why)
}

// Hello has all connections speak another protocol.
func (x *Subscriptions) Hello(id upstream.Identity) (err error) {
	if x == nil || !x.take() {
		return nil
	}
	defer x.giveTurn()
	for _, e := range x.live() {
		if failed := x.Host.Hello(e.p.Conn, id); failed != nil {
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
