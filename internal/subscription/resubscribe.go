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
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	remakePause = 100 * time.Millisecond // between tries
	remakeFor   = 30 * time.Second       // after so long without progress the client is closed, if it holds no lock
	remakeStep  = 2 * time.Second        // for one node's answer
	eventRetry  = time.Second            // before subscribing is tried again at masters where it failed
)

var errNotServed = errors.New("hash slot not served")

// keep is the goroutine that makes lost subscriptions again, and has keyspace notifications come from all masters. It
// ends with the session.
func (x *Subscriptions) keep() {
	defer close(x.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	left, progress := 0, time.Now() // what could not be made again yet, and since when that has not become less
	for {
		select {
		case <-x.ctx.Done():
			return
		case <-x.woken:
		case <-timer.C:
		}
		before, dead := x.lostNow()
		if left == 0 {
			progress = time.Now()
		}
		switch {
		case !x.Client.Lockless():
		case slices.ContainsFunc(dead, x.deliberate):
			x.cutOff("its connection upstream was closed")
			return
		case time.Since(progress) > remakeFor:
			x.cutOff("its subscriptions could not be made again")
			return
		}
		var next time.Duration
		if next, left = x.keepOnce(); left < before {
			progress = time.Now()
		}
		if left > 0 {
			x.Nodes.Refreshed(x.ctx)
		}
		timer.Reset(next)
	}
}

// keepOnce makes again what is lost, as far as that can be done just now. It returns how much is left, and when to try
// again.
func (x *Subscriptions) keepOnce() (next time.Duration, left int) {
	if !x.take() {
		return 0, 0
	}
	defer x.giveTurn()
	for as, subs := range x.lostAs() {
		x.resubscribeAll(as, subs)
	}
	next = time.Hour
	if v := x.events.Load(); v != nil && v.cover(nil) != nil {
		next = eventRetry
	}
	if left = x.left(); left > 0 {
		next = remakePause
	}
	return next, left
}

// lostNow is how much is to be made again, and which connections were lost since it was called before.
func (x *Subscriptions) lostNow() (all int, dead []*subscriptionConn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	dead, x.dead = x.dead, nil
	return len(x.where.lost), dead
}

func (x *Subscriptions) left() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.where.lost)
}

// lostAs is what is to be made again, by the identity as which it was there.
func (x *Subscriptions) lostAs() map[upstream.Identity][]dedicated.Subscription {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := map[upstream.Identity][]dedicated.Subscription{}
	for sub, as := range x.where.lost {
		all[as] = append(all[as], sub)
	}
	return all
}

// deliberate says that the node of a lost connection has been up ever since: then Redis has closed this connection on
// purpose, as it does with clients that are killed, or do not read. A node that has died, or was restarted, loses all
// connections.
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
			if !x.resubscribe(as, g.kind, g.slot, names, silent) {
				break
			}
		}
	}
}

// resubscribe makes subscriptions of one slot again, at the node that has it, and follows redirects; false: that node
// does not answer.
func (x *Subscriptions) resubscribe(as upstream.Identity, kind dedicated.SubscriptionKind, slot int, names []string, silent map[*cluster.Node]bool) bool {
	for t := x.Nodes.Tries(slot); ; {
		at := x.nodeFor(t)
		if at == nil || silent[at] {
			return true
		}
		err := x.resubscribeAt(as, kind, names, at)
		if client.Denied(err) {
			x.cutOff("its subscriptions could not be made again: " + err.Error())
		}
		if err != nil && upstream.Refused(err) == nil {
			silent[at] = true
			x.passOver(useFor(kind))
			return false
		}
		if t.After(x.Nodes.RefusalIn(at, err), time.Now()) != cluster.Follow {
			return true
		}
	}
}

// resubscribeAt makes subscriptions again at a node.
func (x *Subscriptions) resubscribeAt(as upstream.Identity, kind dedicated.SubscriptionKind, names []string, at *cluster.Node) error {
	e, err := x.open(as, useFor(kind), at)
	if err != nil {
		return err
	}
	defer e.rest()
	return e.call(dedicated.SubscribeVerbs[kind], names)
}

// call has the proxy's own SUBSCRIBE, or its like, confirmed, past the session's goroutine. The error may be Redis'.
// If the node does not answer, the connection is closed.
func (c *subscriptionConn) call(verb string, names []string) error {
	ctx, cancel := context.WithTimeout(c.x.ctx, remakeStep)
	defer cancel()
	var refusal []byte
	row := c.x.Routes.Load().Table.Find([][]byte{[]byte(verb)})
	e := &dedicated.Reply{Cmd: row, Kind: commandtable.ConnSubscribe, Own: true, Got: &refusal, Names: names}
	raw := resp.AppendCommand(nil, append([]string{verb}, names...)...)
	if !c.answers(func() bool { return c.p.Exchange(ctx, e, raw) }) {
		return &upstream.NotSentError{Cause: dedicated.ErrGone}
	}
	return upstream.ErrorIn(refusal)
}

// answers says whether the node answers the proxy, which ask finds out. If it does not, the connection is closed.
func (c *subscriptionConn) answers(ask func() bool) bool {
	c.asks(true)
	if !ask() {
		c.giveUp(upstream.ErrTimeout)
		return false
	}
	c.asks(false)
	return true
}

// giveUp ends the connection for that reason. It is the proxy that does, not Redis, also if the node answers again just now.
func (c *subscriptionConn) giveUp(why error) {
	c.asks(true)
	c.p.Ended(why)
}

func (c *subscriptionConn) asks(now bool) {
	c.x.mu.Lock()
	defer c.x.mu.Unlock()
	c.asked = now
}

// Confirmed implements dedicated.Interceptor. The confirmation of the client's own command is passed on. That of a
// subscription made again is not, and the end of one that nobody asked for, by which Redis tells that its slot has
// left, has it made again.
func (c *subscriptionConn) Confirmed(n dedicated.Confirmation, e *dedicated.Reply, proto int) (told []byte, asked bool) {
	asked = e != nil && e.Kind == commandtable.ConnSubscribe
	if c.use == forEvents { // the client gets its confirmations from its ordinary connection for subscriptions
		return nil, asked
	}
	x, sub := c.x, n.Of
	asked = asked && e.Cmd.Name == n.Verb && e.Names[0] == sub.Name // Redis confirms them in their order
	clients := asked && !e.Own                                      // command
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case n.Ends && asked:
		x.where.drop(sub)
	case n.Ends:
		x.lose(sub, c)
	case clients:
		x.where.put(sub, c)
	case x.where.regain(sub, c):
		x.Nodes.Resubscribed.Add(1)
	}
	if clients {
		told = x.confirm(nil, proto, n.Verb, sub.Kind, n.Name())
	}
	return told, asked
}

// lose notes that a subscription is to be made again, if it was on that connection. mu is held.
func (x *Subscriptions) lose(sub dedicated.Subscription, was *subscriptionConn) {
	if x.where.lose(sub, was) {
		x.wake()
	}
}

// Ended implements dedicated.Interceptor: all that was subscribed to there is made again.
func (c *subscriptionConn) Ended() {
	x := c.x
	if c.use == forEvents {
		x.wake()
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	before := len(x.where.lost)
	for sub := range x.where.on {
		x.lose(sub, c)
	}
	closed := c.asked || c.p.Node.InTrouble() // by the proxy, because its node has not answered in time
	if len(x.where.lost) > before && !closed {
		x.dead = append(x.dead, c)
	}
}

// cutOff closes a client whose subscriptions cannot be made again, as Redis would have closed it.
func (x *Subscriptions) cutOff(why string) { x.Client.End.Cut(downstream.Left, why) }

// Hello has all connections speak another protocol. One that does not answer is lost: what it was for is made again,
// and speaks it then.
func (x *Subscriptions) Hello(id upstream.Identity) {
	if !x.take() {
		return
	}
	defer x.giveTurn()
	x.proto = id.Proto
	for _, e := range x.live() {
		e.answers(func() bool { return x.Host.Hello(e.p.Conn, id) == nil })
	}
}
