package subscription

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	remakePause = 100 * time.Millisecond // between tries
	remakeFor   = 30 * time.Second       // after so long without progress the client is closed, if it holds no lock
	remakeStep  = 2 * time.Second        // for one node's answer
)

var errNotServed = errors.New("hash slot not served")

// resubscribe is the goroutine that makes lost subscriptions again. It ends when none is left, or with the session.
func (x *Subscriptions) resubscribe(gone chan<- struct{}) {
	defer close(gone)
	began := time.Now()
	for {
		all, dead := x.lostNow()
		if all == 0 || x.ctx.Err() != nil {
			return
		}
		for _, e := range dead {
			if x.Client.Lockless() && x.deliberate(e) {
				x.cutOff("its connection upstream was closed")
				return
			}
		}
		if time.Since(began) > remakeFor && x.Client.Lockless() {
			x.cutOff("its subscriptions could not be made again")
			return
		}
		if !x.take() {
			return
		}
		for as, subs := range x.lostAs() { // by now: HELLO may have had the turn
			x.resubscribeAll(as, subs)
		}
		x.giveTurn()
		left := x.left()
		if left < all {
			began = time.Now()
		}
		if left > 0 {
			x.Nodes.Refreshed(x.ctx)
			retry.Sleep(x.Context, remakePause, x.ctx.Done())
		}
	}
}

// lostNow is how much is to be made again. When that is nothing the goroutine ends: whoever loses something starts another.
func (x *Subscriptions) lostNow() (all int, dead []*subscriptionConn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.lost) == 0 {
		x.maker = nil
	}
	dead, x.dead = x.dead, nil
	return len(x.lost), dead
}

func (x *Subscriptions) left() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.lost)
}

// lostAs is what is to be made again, by the identity as which it was there. The caller has the turn.
func (x *Subscriptions) lostAs() map[upstream.Identity][]dedicated.Subscription {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := map[upstream.Identity][]dedicated.Subscription{}
	for sub, id := range x.lost {
		all[id] = append(all[id], sub)
	}
	return all
}

// deliberate says that the node of a lost connection has been up ever since: then Redis has closed this connection on purpose,
// as it does with clients that are killed, or do not read. A node that has died, or was restarted, loses all connections.
func (x *Subscriptions) deliberate(e *subscriptionConn) bool {
	n := e.p.Node
	ctx, cancel := context.WithTimeout(x.ctx, remakeStep)
	defer cancel()
	answer, err := backend.Ask(ctx, n.Upstream(), x.AsService(), "INFO", "server")
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
		g := group{sub.Kind, backend.NoSlot}
		if sub.Kind == dedicated.OfShard {
			g.slot = cluster.Slot([]byte(sub.Name))
		}
		groups[g] = append(groups[g], sub.Name)
	}
	silent := map[*cluster.Node]bool{} // each is waited for once: the client may be waiting for the turn
	for g, all := range groups {
		for names := range slices.Chunk(all, dedicated.RemadeAtOnce) {
			at, answered := x.home(g.slot), true
			for range 3 { // redirects
				if at == nil || silent[at] {
					break
				}
				from := at
				if at, answered = x.resubscribeAt(as, g.kind, g.slot, names, at); !answered {
					silent[from] = true
				}
			}
			if !answered {
				break
			}
		}
	}
}

// resubscribeAt makes subscriptions of one slot again at a node, and returns another node if the first redirects there.
func (x *Subscriptions) resubscribeAt(as upstream.Identity, kind dedicated.SubscriptionKind, slot int, names []string, at *cluster.Node) (to *cluster.Node, answered bool) {
	e, err := x.open(as, kind == dedicated.OfShard, at)
	if err != nil {
		if client.PasswordRefused(err) {
			x.cutOff("its subscriptions could not be made again: " + err.Error())
		}
		x.passOver(slot)
		return nil, false
	}
	defer e.rest()
	refusal, answered := e.call(dedicated.SubscribeVerbs[kind], names)
	if !answered {
		x.passOver(slot)
		return nil, false
	}
	if to, ask, ok := x.Nodes.Redirect(refusal, slot, e.p.Node); ok && !ask {
		return to, true
	}
	if line, bad := resp.ErrorLine(refusal); bad && (strings.HasPrefix(line, "NOPERM ") || strings.HasPrefix(line, "NOAUTH ")) {
		x.cutOff("its subscriptions could not be made again: " + line)
	}
	return nil, true
}

// call has the proxy's own SUBSCRIBE, or its like, confirmed or refused, past the session's goroutine. If the node does not answer, the
// connection is closed.
func (c *subscriptionConn) call(verb string, names []string) (refusal []byte, answered bool) {
	ctx, cancel := context.WithTimeout(c.x.ctx, remakeStep)
	defer cancel()
	c.x.mu.Lock()
	c.called = ctx
	c.x.mu.Unlock()
	e := &dedicated.Reply{Cmd: c.x.Routes.Load().Table.Find([][]byte{[]byte(verb)}), Kind: commandtable.ConnSubscribe, Own: true, Got: &refusal, Names: names}
	if answered = c.p.Exchange(ctx, e, resp.AppendCommand(nil, append([]string{verb}, names...)...)); !answered {
		c.p.Lose()
	}
	return refusal, answered
}

// givenUp says that the proxy has closed the connection, because its node did not answer in time. mu is held.
func (c *subscriptionConn) givenUp() bool {
	return c.greeting || c.p.Node.InTrouble() || c.called != nil && c.called.Err() == context.DeadlineExceeded
}

// Confirmed implements dedicated.Interceptor. The confirmation of the client's own command is passed on. That of a
// subscription made again is not, and the end of one that nobody asked for, by which Redis tells that its slot has left, has
// it made again.
func (c *subscriptionConn) Confirmed(n dedicated.Confirmation, e *dedicated.Reply, proto int) (told []byte, asked bool) {
	asked = e != nil && e.Kind == commandtable.ConnSubscribe
	if c.events { // the client gets its confirmations from its ordinary connection for subscriptions
		return nil, asked
	}
	x, sub := c.x, n.Of
	asked = asked && e.Cmd.Name == n.Verb && e.Names[0] == sub.Name // Redis confirms them in their order
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case n.Ends && asked:
		x.where.drop(sub)
	case n.Ends:
		x.lose(sub, c)
	case asked && !e.Own:
		x.where.put(sub, c)
	default:
		if at, wanted := x.where.on[sub]; wanted && at == nil {
			x.where.put(sub, c)
			x.Nodes.Resubscribed.Add(1)
		}
	}
	if x.where.on[sub] != nil || n.Ends && asked {
		delete(x.lost, sub)
	}
	if asked && !e.Own {
		told = x.confirm(nil, proto, n.Verb, sub.Kind, n.Name())
	}
	return told, asked
}

// lose notes that a subscription is to be made again, if it was on that connection. mu is held.
func (x *Subscriptions) lose(sub dedicated.Subscription, was *subscriptionConn) {
	if at, wanted := x.where.on[sub]; !wanted || at != was {
		return
	}
	x.where.put(sub, nil)
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
	lost := false
	for sub, at := range x.where.on {
		if at == c {
			x.lose(sub, c)
			lost = true
		}
	}
	if lost && !c.givenUp() {
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
	x.Client.End.Cut(downstream.Left, why)
}

// greets notes that the connection is asked to speak another protocol; what does not answer that is closed by the proxy.
func (c *subscriptionConn) greets(now bool) {
	c.x.mu.Lock()
	defer c.x.mu.Unlock()
	c.greeting = now
}

// Hello has all connections speak another protocol. One that does not answer is lost: what it was for is made again, and speaks it then.
func (x *Subscriptions) Hello(id upstream.Identity) {
	if x == nil || !x.take() {
		return
	}
	defer x.giveTurn()
	for _, e := range x.live() {
		e.greets(true)
		if x.Host.Hello(e.p.Conn, id) != nil {
			e.p.Lose()
			continue
		}
		e.greets(false)
	}
	if v := x.events.Load(); v != nil {
		v.as.Proto = id.Proto
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
}
