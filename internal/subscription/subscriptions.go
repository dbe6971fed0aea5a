// Package subscription has the subscriptions of one client with a cluster upstream. They have connections of their
// own: one to any node, for channels and patterns, and one to each node that has sharded channels to which the client
// is subscribed. Messages are passed on as they come. So are confirmations, except for the number at their end, which
// counts all of these connections together. When a slot moves or a node dies, its subscriptions are made again
// elsewhere (resubscribe.go), and the client is not told. Keyspace notifications have further connections (events.go).
package subscription

import (
	"context"
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
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// askPause is the time before a command that needs a connection looks for one again.
const askPause = 20 * time.Millisecond

// Host has the connections of the client whose subscriptions these are.
type Host interface {
	// Connect makes a connection for messages to a node, as id, which the client need not be any more.
	Connect(ctx context.Context, id upstream.Identity, at *cluster.Node) (Link, error)
	// Hello switches a connection to id's protocol.
	Hello(c *dedicated.Conn, id upstream.Identity) error
}

// Link is a connection for messages.
type Link struct {
	*dedicated.Conn
	Relay func(cmd redcon.Command, c *commandtable.Command) // sends the client's own command there
	End   func()                                            // closes it; no reply is pending there
}

// Config is what a client's subscriptions are made of.
type Config struct {
	*backend.Common
	Host      Host
	Client    *client.Client
	Nodes     *backend.Clustered
	View      *dedicated.View // what CLIENT LIST may see of them
	Spread    int             // a number of the client's, so that clients use different nodes; who has the turn changes it
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
	x     *Subscriptions
	p     Link
	use   use
	since time.Time
	as    upstream.Identity // as which it was made, without a protocol
	asked bool              // the proxy waits for an answer there, and gives it up if none comes; guarded by Subscriptions.mu
}

// Subscriptions are a client's subscriptions.
type Subscriptions struct {
	Config
	ctx    context.Context // ends with the session
	stop   context.CancelFunc
	turn   chan struct{}          // one slot: who has it may subscribe, and change all
	woken  chan struct{}          // one slot: keep is to look again
	ended  chan struct{}          // closed when keep has ended
	events atomic.Pointer[events] // nil: it has asked for no keyspace notifications
	proto  int                    // of the connections; written with the turn
	all    []*subscriptionConn    // some may have been given back or lost: see live

	mu    sync.Mutex // guards all below; taken under the lock of a connection
	where places
	dead  []*subscriptionConn // connections that were lost, it is not known yet why
}

// New makes the subscriptions of a client that has none yet.
func New(c Config) *Subscriptions {
	x := &Subscriptions{Config: c, turn: make(chan struct{}, 1), woken: make(chan struct{}, 1), ended: make(chan struct{}),
		proto: c.Client.Identity().Proto, where: newPlaces(c.Client.Writer.NewAccount(), c.View)}
	x.ctx, x.stop = context.WithCancel(c.Context)
	go x.keep()
	return x
}

// Close ends all subscriptions.
func (x *Subscriptions) Close() {
	x.stop()
	<-x.ended
	x.Listeners.remove(x)
	for _, e := range x.all {
		e.p.End()
	}
	x.mu.Lock()
	x.where.clear()
	x.mu.Unlock()
}

// wake makes keep look again.
func (x *Subscriptions) wake() { retry.Wake(x.woken) }

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

// take takes the turn; false: the session has ended.
func (x *Subscriptions) take() bool {
	select {
	case x.turn <- struct{}{}:
		return true
	case <-x.ctx.Done():
		return false
	}
}

func (x *Subscriptions) giveTurn() { <-x.turn }

// live returns the connections that still exist. Here and below, the caller has the turn.
func (x *Subscriptions) live() []*subscriptionConn {
	x.all = slices.DeleteFunc(x.all, func(e *subscriptionConn) bool {
		return e.p.Released()
	})
	return x.all
}

// hold keeps a connection from being given back until rest; false: it is gone.
func (c *subscriptionConn) hold() bool { return !c.p.Hold().Released }

// rest ends hold: a connection on which nothing is subscribed to is given back.
func (c *subscriptionConn) rest() { c.p.Release() }

// open finds a connection of an identity, or makes one, at a node if it is for sharded channels, else at any, for as
// long as that is not in trouble. It is held until rest.
func (x *Subscriptions) open(as upstream.Identity, of use, at *cluster.Node) (*subscriptionConn, error) {
	as.Proto = 0
	for _, e := range x.live() {
		fits := e.p.Node == at || of == forAny && !e.p.Node.InTrouble()
		if e.use == of && e.as == as && fits && e.hold() {
			return e, nil
		}
	}
	ctx, done := x.ctx, func() {}
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
	c.x, c.p, c.since = x, p, time.Now()
	p.Intercept(c)
	x.all = append(x.all, c)
	return c, nil
}

// Run runs SUBSCRIBE, UNSUBSCRIBE and their variants.
func (x *Subscriptions) Run(cmd redcon.Command, c *commandtable.Command) {
	if !x.take() {
		return
	}
	defer x.giveTurn()
	names := cmd.Args[1:]
	defer func() { // looks only then, since this may be the first command that asks for keyspace notifications
		if x.events.Load() != nil {
			x.wake() // some may have ended, or been refused
		}
	}()
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
	} else if err := x.subscribeEvents(kind, names); err != nil {
		x.Client.Fail(err)
		return false
	}
	for t := x.Nodes.Tries(slot); ; {
		rest, r, err := x.ask(c, kind, names, x.nodeFor(t))
		if err == nil {
			return true
		}
		names = rest
		if !t.Again(x.Client.Context(), r) {
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
	e, err := x.open(x.Client.Identity(), useFor(kind), at)
	if err != nil {
		x.passOver(useFor(kind))
		if !client.NoFurther(err) {
			r = cluster.Unreached
		}
		return names, r, err
	}
	defer e.rest()
	if rest, err = x.sent(e, c, names); upstream.IsNotSent(err) {
		x.passOver(e.use)
		return rest, cluster.Unreached, err
	}
	return rest, x.Nodes.RefusalIn(e.p.Node, err), err
}

// sent is ask on a connection that exists. If that is lost, what was confirmed there is made again by keep.
func (x *Subscriptions) sent(e *subscriptionConn, c *commandtable.Command, names [][]byte) (rest [][]byte, err error) {
	words := append([][]byte{[]byte(c.Name)}, names...)
	var got []byte
	o := &dedicated.Reply{Cmd: c, Kind: c.Conn, Got: &got, Names: texts(names)}
	if e.use == forAny && !e.p.Status().Subscribed { // what is subscribed to there already needs this node
		ctx, done := x.Nodes.Snapshot().While(x.ctx, e.p.Node)
		defer done()
		defer context.AfterFunc(ctx, func() { e.giveUp(context.Cause(ctx)) })()
	}
	e.p.Send(o, resp.Command(words))
	if !e.p.Settled() && o.Lost == nil {
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
		x.mu.Lock()
		e := x.where.on[dedicated.Subscription{Kind: kind, Name: string(name)}]
		x.mu.Unlock()
		if e != nil {
			if _, err := x.sent(e, c, [][]byte{name}); err == nil {
				continue
			}
		}
		x.confirmEnd(c, kind, name)
	}
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
// none just now.
func (x *Subscriptions) Asks(cmd redcon.Command, c *commandtable.Command) bool {
	for until := time.Now().Add(x.Nodes.RetryFor()); x.take(); x.Client.Pause(askPause) {
		asked := x.askAny(cmd, c)
		x.giveTurn() // to the goroutine that makes subscriptions again
		if asked || time.Now().After(until) || x.Client.End.Over() {
			return asked
		}
	}
	return false
}

func (x *Subscriptions) askAny(cmd redcon.Command, c *commandtable.Command) bool {
	for _, e := range x.live() {
		if e.use != forEvents && e.p.Status().Subscribed && e.hold() {
			e.p.Relay(cmd, c)
			e.p.Settled()
			e.rest()
			return true
		}
	}
	return false
}
