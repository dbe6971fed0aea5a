// Package subscription has the subscriptions of one client with a cluster upstream. They have connections of their own: one to any node,
// for channels and patterns, and one to each node that has sharded channels to which the client is subscribed. Messages are passed on as
// they come. So are confirmations, except for the number at their end, which counts all of these connections together. When a slot moves
// or a node dies, its subscriptions are made again elsewhere (resubscribe.go), and the client is not told. Keyspace notifications have
// further connections (events.go).
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

// subscriptionConn is one connection of the client's subscriptions.
type subscriptionConn struct {
	x       *Subscriptions
	p       Link
	sharded bool
	events  bool // it is for keyspace notifications: see events
	since   time.Time
	id      upstream.Identity // as which it was made, and will be again; written with the turn and subscriptions.mu
	// The proxy closes the connection if it is not answered there. Both are guarded by subscriptions.mu.
	greeting bool            // HELLO is under way
	called   context.Context // of the proxy's last call there
}

// Subscriptions are a client's subscriptions.
type Subscriptions struct {
	Config
	ctx    context.Context // ends with the session
	stop   context.CancelFunc
	turn   chan struct{}          // one slot: who has it may subscribe, and change all
	events atomic.Pointer[events] // nil: it has asked for no keyspace notifications
	all    []*subscriptionConn    // some may have been given back or lost: see live

	mu    sync.Mutex // guards all below; taken under the lock of a connection
	where places
	lost  map[dedicated.Subscription]upstream.Identity // of where, those to be made again
	dead  []*subscriptionConn                          // connections that were lost, it is not known yet why
	maker chan struct{}                                // closed when the goroutine that makes them again has ended; nil: there is none
	over  bool
}

// New makes the subscriptions of a client that has none yet.
func New(c Config) *Subscriptions {
	x := &Subscriptions{Config: c, turn: make(chan struct{}, 1), lost: map[dedicated.Subscription]upstream.Identity{}}
	x.where = places{on: map[dedicated.Subscription]*subscriptionConn{}, kept: c.Client.Writer.NewAccount(), view: c.View}
	x.ctx, x.stop = context.WithCancel(c.Context)
	return x
}

// Close ends all subscriptions.
func (x *Subscriptions) Close() {
	x.stop()
	x.mu.Lock()
	x.over = true
	maker := x.maker
	x.mu.Unlock()
	if maker != nil {
		<-maker
	}
	if v := x.events.Load(); v != nil {
		v.end()
	}
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

// keep keeps a connection from being given back until rest; false: it is gone.
func (c *subscriptionConn) keep() bool {
	return !c.p.Hold().Released
}

// rest ends keep: a connection on which nothing is subscribed to is given back.
func (c *subscriptionConn) rest() {
	c.p.Release()
}

// open finds a connection of an identity, or makes one, at a node if it is for sharded channels, else at any, for as long as that is not in
// trouble. It is kept until rest.
func (x *Subscriptions) open(id upstream.Identity, sharded bool, at *cluster.Node) (*subscriptionConn, error) {
	for _, e := range x.live() {
		fits := e.p.Node == at || !sharded && !e.p.Node.InTrouble()
		if !e.events && e.sharded == sharded && e.id == id && fits && e.keep() {
			return e, nil
		}
	}
	ctx, done := x.ctx, func() {}
	if !sharded {
		ctx, done = x.Nodes.Snapshot().While(ctx, at)
	}
	defer done()
	p, err := x.Host.Connect(ctx, id, at)
	if err != nil {
		return nil, err
	}
	e := &subscriptionConn{x: x, p: p, sharded: sharded, id: id, since: time.Now()}
	p.Intercept(e)
	x.all = append(x.all, e)
	return e, nil
}

// Run runs SUBSCRIBE, UNSUBSCRIBE and their variants.
func (x *Subscriptions) Run(cmd redcon.Command, c *commandtable.Command) {
	if !x.take() {
		return
	}
	defer x.giveTurn()
	names := cmd.Args[1:]
	defer func() { // looks only then, since this may be the first command that asks for keyspace notifications
		if v := x.events.Load(); v != nil {
			v.wake() // some may have ended, or been refused
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
	var to *cluster.Node
	for until := time.Now().Add(x.Nodes.RetryFor()); ; {
		at := to
		if to = nil; at == nil {
			at = x.home(slot)
		}
		refusal, from, err := x.ask(c, names, at)
		done := len(refusal) == 0 && err == nil
		if err != nil {
			x.passOver(slot)
		}
		switch {
		case done || x.Client.End.Over():
			return done
		case client.NoFurther(err), err == nil && !dedicated.IsRedirect(refusal), time.Now().After(until):
			if err != nil {
				x.Client.Fail(err)
				x.Trouble(err)
			}
			x.Client.Give(refusal)
			return false
		}
		if next, ask, ok := x.Nodes.Redirect(refusal, slot, from); ok && !ask && next != nil {
			to = next
			continue
		}
		x.Nodes.LookAgain(x.Client)
	}
}

// home is the node at which a slot's channels are subscribed to, or with backend.NoSlot all others; nil: there is none.
func (x *Subscriptions) home(slot int) *cluster.Node {
	snapshot := x.Nodes.Snapshot()
	if slot == backend.NoSlot {
		return snapshot.Any(x.Spread, 0)
	}
	return snapshot.Owner(slot)
}

// passOver has what has no slot go to another node from now on, since home did not answer.
func (x *Subscriptions) passOver(slot int) {
	if slot == backend.NoSlot {
		x.Spread++
	}
}

// ask has the client's own command run at a node. What is confirmed goes to the client; refusal is an error of Redis'.
func (x *Subscriptions) ask(c *commandtable.Command, names [][]byte, at *cluster.Node) (refusal []byte, from *cluster.Node, err error) {
	if at == nil {
		return nil, nil, &upstream.NotSentError{Cause: errNotServed}
	}
	e, err := x.open(x.Client.Identity(), c.Name == dedicated.SubscribeVerbs[dedicated.OfShard], at)
	if err != nil {
		return nil, at, err
	}
	defer e.rest()
	return x.sent(e, c, names)
}

// sent is ask on a connection that exists.
func (x *Subscriptions) sent(e *subscriptionConn, c *commandtable.Command, names [][]byte) (refusal []byte, from *cluster.Node, err error) {
	words := append([][]byte{[]byte(c.Name)}, names...)
	var got []byte
	o := &dedicated.Reply{Cmd: c, Kind: c.Conn, Got: &got, Names: texts(names)}
	if !e.sharded && !e.p.Status().Subscribed { // what is subscribed to there already needs this node
		ctx, done := x.Nodes.Snapshot().While(x.ctx, e.p.Node)
		defer done()
		defer context.AfterFunc(ctx, func() { e.p.GiveUp(context.Cause(ctx)) })()
	}
	e.p.Send(o, resp.Command(words))
	if !e.p.Settled() && o.Lost == nil {
		o.Lost = dedicated.ErrGone
	}
	if o.Lost != nil {
		return nil, e.p.Node, &upstream.NotSentError{Cause: o.Lost}
	}
	return got, e.p.Node, nil
}

func texts(words [][]byte) []string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = string(w)
	}
	return all
}

// unsubscribe ends subscriptions; without names all of a kind. For names that are subscribed to nowhere the confirmation is made here.
func (x *Subscriptions) unsubscribe(c *commandtable.Command, kind dedicated.SubscriptionKind, names [][]byte) {
	if len(names) == 0 {
		for _, name := range x.names(kind) {
			names = append(names, []byte(name))
		}
	}
	if len(names) == 0 {
		names = [][]byte{nil}
	}
	for _, name := range names {
		sub := dedicated.Subscription{Kind: kind, Name: string(name)}
		x.mu.Lock()
		e := x.where.on[sub]
		x.mu.Unlock()
		if e != nil && name != nil {
			refusal, _, err := x.sent(e, c, [][]byte{name})
			if err == nil && len(refusal) == 0 {
				continue
			}
		}
		x.mu.Lock()
		x.where.drop(sub)
		delete(x.lost, sub)
		confirmation := x.confirm(nil, x.Client.Identity().Proto, c.Name, kind, name)
		x.mu.Unlock()
		x.Client.Push(confirmation)
	}
}

// Asks lets one of the connections with subscriptions answer a command, as Redis answers subscribers; false: there is none just now.
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
		if e.p.Status().Subscribed && !e.events && e.keep() {
			e.p.Relay(cmd, c)
			e.p.Settled()
			e.rest()
			return true
		}
	}
	return false
}
