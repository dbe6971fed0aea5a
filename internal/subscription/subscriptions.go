// Package subscription has the subscriptions of one client with a cluster upstream. They have connections of their
// own: one to any node, for channels and patterns, and one to each node that has sharded channels to which the client
// is subscribed. Messages are passed on as they come. So are confirmations, except for the number at their end, which
// counts all of these connections together. That of an end which nobody has asked for tells the client that a sharded
// channel's slot has moved. When a connection with subscriptions is lost the client is closed, as Redis would have
// closed it. Keyspace notifications have further connections (events.go).
package subscription

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// eventsTimeout is how long each master may take to confirm a subscription for keyspace notifications.
const eventsTimeout = 2 * time.Second

var errNotServed = errors.New("hash slot not served")

// Host has the connections of the client whose subscriptions these are.
type Host interface {
	// Connect makes a connection for messages to a node, as id, which the client need not be any more.
	Connect(ctx context.Context, id upstream.Identity, at *cluster.Node) (Link, error)
}

// Link is a connection for messages.
type Link struct {
	*dedicated.Conn
	Relay func(cmd redcon.Command, c *commandtable.Command) // sends the client's own command there
	Rest  func() (left bool)                                // gives it back if nothing is subscribed to there
	End   func()                                            // closes it; no reply is pending there
}

// Config is what a client's subscriptions are made of.
type Config struct {
	*backend.Common
	Host      Host
	Client    *client.Client
	Nodes     *backend.Clustered
	View      *dedicated.View // what CLIENT LIST may see of them
	Spread    int             // a number of the client's, so that clients use different nodes
	Listeners *Listeners
}

// use is what a connection is for.
type use uint8

const (
	forAny    use = iota // channels and patterns
	forShards            // sharded channels of one node
	forEvents            // keyspace notifications of one node: see events
)

// useFor is what a connection for subscriptions of a kind is for.
func useFor(k dedicated.SubscriptionKind) use {
	if k == dedicated.OfShard {
		return forShards
	}
	return forAny
}

// subscriptionConn is one connection of the client's subscriptions.
type subscriptionConn struct {
	x   *Subscriptions
	p   Link
	use use
	as  upstream.Identity // as which it was made, without a protocol
}

// Subscriptions are a client's subscriptions. Only its goroutine uses them, but for what connections tell.
type Subscriptions struct {
	Config
	proto   int                 // of the connections
	all     []*subscriptionConn // some may have been given back or lost: see live
	listens atomic.Bool         // it has asked for keyspace notifications

	mu    sync.Mutex // guards where; taken under the lock of a connection
	where subscribed
}

// New makes the subscriptions of a client that has none yet.
func New(c Config) *Subscriptions {
	return &Subscriptions{Config: c, proto: c.Client.Identity().Proto, where: newSubscribed(c.Client.Writer.NewAccount(), c.View)}
}

// Close ends all subscriptions.
func (x *Subscriptions) Close() {
	x.Listeners.remove(x)
	for _, e := range x.all {
		e.p.End()
	}
	x.mu.Lock()
	x.where.clear()
	x.mu.Unlock()
}

// names are what is subscribed to of a kind.
func (x *Subscriptions) names(k dedicated.SubscriptionKind) (names []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for sub := range x.where.on {
		if sub.Kind == k {
			names = append(names, sub.Name)
		}
	}
	slices.Sort(names)
	return names
}

// at is the connection that a subscription is on; nil: there is no such subscription.
func (x *Subscriptions) at(kind dedicated.SubscriptionKind, name []byte) *subscriptionConn {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.where.on[dedicated.Subscription{Kind: kind, Name: string(name)}]
}

// confirm is the confirmation of a subscription, or of its end; name nil: there was none. mu is held.
func (x *Subscriptions) confirm(out []byte, proto int, verb string, k dedicated.SubscriptionKind, name []byte) []byte {
	out = resp.AppendBulkString(resp.AppendPush(out, proto, 3), verb)
	if name == nil {
		out = resp.AppendNull(out, proto)
	} else {
		out = resp.AppendBulk(out, name)
	}
	return resp.AppendInt(out, int64(x.where.number(k)))
}

// live returns the connections that still exist.
func (x *Subscriptions) live() []*subscriptionConn {
	x.all = slices.DeleteFunc(x.all, func(e *subscriptionConn) bool {
		over := e.p.Status().Over
		if over {
			e.p.End()
		}
		return over
	})
	return x.all
}

// Rest gives the connections back on which nothing is subscribed to, and has what comes on the others passed on. No
// reply is pending there.
func (x *Subscriptions) Rest() {
	x.all = slices.DeleteFunc(x.all, func(e *subscriptionConn) bool {
		left := e.p.Rest()
		if !left {
			e.p.Listen()
		}
		return left
	})
}

// open finds a connection of the client's identity, or makes one, at a node, but for channels and patterns at any, for
// as long as that is not in trouble.
func (x *Subscriptions) open(of use, at *cluster.Node) (*subscriptionConn, error) {
	as := x.Client.Identity()
	as.Proto = 0
	for _, e := range x.live() {
		fits := e.p.Node == at || of == forAny && !e.p.Node.InTrouble()
		if e.use == of && (e.as == as || of == forEvents) && fits {
			return e, nil
		}
	}
	ctx, done := x.Context, func() {}
	if of == forAny {
		ctx, done = x.Nodes.Snapshot().While(ctx, at)
	}
	defer done()
	return x.connect(ctx, &subscriptionConn{use: of, as: as}, at)
}

// connect makes c's connection to a node.
func (x *Subscriptions) connect(ctx context.Context, c *subscriptionConn, at *cluster.Node) (*subscriptionConn, error) {
	id := c.as
	id.Proto = x.proto
	p, err := x.Host.Connect(ctx, id, at)
	if err != nil {
		return nil, err
	}
	c.x, c.p = x, p
	p.Intercept(c)
	x.all = append(x.all, c)
	return c, nil
}

// Run runs SUBSCRIBE, UNSUBSCRIBE and their variants.
func (x *Subscriptions) Run(cmd redcon.Command, c *commandtable.Command) {
	names := cmd.Args[1:]
	if kind := slices.Index(dedicated.UnsubscribeVerbs[:], c.Name); kind >= 0 {
		x.unsubscribe(c, dedicated.SubscriptionKind(kind), names)
		return
	}
	kind := dedicated.SubscriptionKind(slices.Index(dedicated.SubscribeVerbs[:], c.Name))
	if len(names) == 0 {
		x.Client.Fail(&upstream.ReplyError{Line: commandtable.WrongArity(c.Name)})
		return
	}
	for len(names) > 0 && !x.Client.End.Over() {
		n := len(names)
		if kind == dedicated.OfShard { // Redis takes one slot at a time
			for n = 1; n < len(names) && cluster.Slot(names[n]) == cluster.Slot(names[0]); n++ {
			}
		}
		if !x.subscribe(c, kind, names[:n]) {
			return
		}
		names = names[n:]
	}
}

// subscribe subscribes to names at one node; false: the client has been given the error.
func (x *Subscriptions) subscribe(c *commandtable.Command, kind dedicated.SubscriptionKind, names [][]byte) bool {
	slot := backend.NoSlot
	if kind == dedicated.OfShard {
		slot = cluster.Slot(names[0])
	}
	for t := x.Nodes.Tries(slot); ; {
		rest, r, err := x.ask(c, kind, names, x.nodeFor(t))
		if err == nil {
			return true
		}
		names = rest
		if !t.Again(x.Client.Context(), r) {
			x.unlisten(kind, names)
			x.Client.Fail(err)
			x.Trouble(err)
			return false
		}
	}
}

// nodeFor is where a subscription is asked for by the next of its tries; nil: there is no such node.
func (x *Subscriptions) nodeFor(t *cluster.Tries) *cluster.Node {
	snapshot := x.Nodes.Snapshot()
	switch {
	case t.To != nil:
		return t.To
	case t.Slot() == backend.NoSlot: // channels and patterns are at any node
		return snapshot.Any(x.Spread, 0)
	}
	return snapshot.Owner(t.Slot())
}

// passOver has what any node can have go to another one from now on, since the one for it did not answer.
func (x *Subscriptions) passOver(of use) {
	if of == forAny {
		x.Spread++
	}
}

// ask has the client's own command run at a node. What is confirmed goes to the client; with an error rest are the
// names that were not, and r is for the tries.
func (x *Subscriptions) ask(c *commandtable.Command, kind dedicated.SubscriptionKind, names [][]byte, at *cluster.Node) (rest [][]byte, r cluster.Refusal, err error) {
	if at == nil {
		return names, cluster.Unreached, &upstream.NotSentError{Cause: errNotServed}
	}
	if r, err = x.listen(c, kind, names); err != nil {
		return names, r, err
	}
	e, r, err := x.openFor(useFor(kind), at)
	if err != nil {
		x.passOver(useFor(kind))
		return names, r, err
	}
	if rest, err = x.sent(e, c, names); upstream.IsNotSent(err) {
		x.passOver(e.use)
		return rest, cluster.Unreached, err
	}
	return rest, x.Nodes.RefusalIn(e.p.Node, err), err
}

// openFor is open for a request; with an error r is for its tries.
func (x *Subscriptions) openFor(of use, at *cluster.Node) (e *subscriptionConn, r cluster.Refusal, err error) {
	if e, err = x.open(of, at); err != nil && !client.NoFurther(err) {
		r = cluster.Unreached
	}
	return e, r, err
}

// sent is ask on a connection that exists.
func (x *Subscriptions) sent(e *subscriptionConn, c *commandtable.Command, names [][]byte) (rest [][]byte, err error) {
	words := append([][]byte{[]byte(c.Name)}, names...)
	var got []byte
	o := &dedicated.Reply{Cmd: c, Kind: c.Conn, Got: &got, Names: texts(names)}
	request := resp.Command(words)
	e.p.Send(o, request)
	if e.use == forAny && len(request) <= resp.Long { // a long one keeps each node busy, and would go from one to the next
		if err := e.p.WaitWell(x.Nodes.Snapshot()); err != nil && !e.p.Status().Subscribed {
			e.p.Lose(err)
		}
	}
	settled := e.p.Wait
	if e.use == forEvents {
		settled = func() bool { return e.p.WaitFor(eventsTimeout) }
	}
	if !settled() && o.Lost == nil {
		o.Lost = dedicated.ErrGone
	}
	rest = names[len(names)-len(o.Names):]
	if o.Lost != nil {
		return rest, &upstream.NotSentError{Cause: o.Lost}
	}
	return rest, upstream.ErrorIn(got)
}

func texts(words [][]byte) []string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = string(w)
	}
	return all
}

// unsubscribe ends subscriptions; without names all of a kind. For names that are subscribed to nowhere the
// confirmation is made here.
func (x *Subscriptions) unsubscribe(c *commandtable.Command, kind dedicated.SubscriptionKind, names [][]byte) {
	if len(names) == 0 {
		for _, name := range x.names(kind) {
			names = append(names, []byte(name))
		}
	}
	if len(names) == 0 {
		x.confirmEnd(c, kind, nil)
	}
	for _, name := range names {
		if e := x.at(kind, name); e != nil {
			if _, err := x.sent(e, c, [][]byte{name}); err == nil {
				continue
			}
		}
		x.confirmEnd(c, kind, name)
	}
	x.unlisten(kind, names)
}

// confirmEnd ends a subscription that is on no connection, if there is one, and confirms that to the client; name nil:
// there was none.
func (x *Subscriptions) confirmEnd(c *commandtable.Command, kind dedicated.SubscriptionKind, name []byte) {
	x.mu.Lock()
	if name != nil {
		x.where.drop(dedicated.Subscription{Kind: kind, Name: string(name)})
	}
	confirmation := x.confirm(nil, x.Client.Identity().Proto, c.Name, kind, name)
	x.mu.Unlock()
	x.Client.Push(confirmation)
}

// Asks lets one of the connections with subscriptions answer a command, as Redis answers subscribers; false: there is
// none any more.
func (x *Subscriptions) Asks(cmd redcon.Command, c *commandtable.Command) bool {
	for _, e := range x.live() {
		if e.use != forEvents && e.p.Status().Subscribed {
			e.p.Relay(cmd, c)
			e.p.Wait()
			return true
		}
	}
	return false
}

// Hello has all connections speak another protocol. One that does not answer is lost.
func (x *Subscriptions) Hello(proto int) {
	x.proto = proto
	for _, e := range x.live() {
		if err := e.p.Hello(proto, backend.QuestionTime); err != nil {
			e.p.Lose(err)
		}
	}
}

// Confirmed implements dedicated.Interceptor. The client gets the confirmations of its ordinary connections: those that
// it has asked for, and the end of a subscription by which Redis tells that its slot has left.
func (c *subscriptionConn) Confirmed(n dedicated.Confirmation, e *dedicated.Reply, proto int) (told []byte, asked bool) {
	asked = e != nil && e.Kind == commandtable.ConnSubscribe
	if c.use == forEvents {
		return nil, asked
	}
	x := c.x
	x.mu.Lock()
	defer x.mu.Unlock()
	if n.Ends {
		x.where.drop(n.Of)
	} else {
		x.where.put(n.Of, c)
	}
	asked = asked && e.Cmd.Name == n.Verb && e.Names[0] == n.Of.Name // Redis confirms them in their order
	return x.confirm(nil, proto, n.Verb, n.Of.Kind, n.Name()), asked
}
