// Package subscription is what one client is subscribed to with a cluster upstream. Its subscriptions have connections of their own, one,
// to any node, for channels and patterns, and one to each node that has sharded channels of its. Messages are passed on as they come.
// Confirmations are, too, but for the number at their end, which is of all of these connections together. When a slot moves or a node
// dies, its subscriptions are made again elsewhere (resubscribe.go), and the client is not told. Keyspace notifications have connections
// of theirs (events.go).
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
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// askPause is the time before a command that needs a connection looks for one again.
const askPause = 20 * time.Millisecond

// noSlot is the slot of what has none.
const noSlot = -1

// Host is the client whose subscriptions these are. What answers it is called by its own goroutine only.
type Host interface {
	// Connect makes a connection for messages at a node, as somebody who need not be the client any more.
	Connect(ctx context.Context, id upstream.Identity, at *cluster.Node) (Link, error)
	// Hello has a connection speak id's protocol.
	Hello(c *dedicated.Conn, id upstream.Identity) error
	// Find is what is known of a command.
	Find(name string) *commandtable.Command
	// Lockless says that the client holds no lock, and has been told of all losses.
	Lockless() bool

	// Identity is who the client is now.
	Identity() upstream.Identity
	// Refused is the reason why Redis would refuse the client a connection; nil: there is none.
	Refused() error
	// Answer appends a reply to the client.
	Answer(add func(out []byte) []byte)
	// Push appends what the client gets even if it wants no replies.
	Push(frame []byte)
	// Fail answers a command that failed with err, or closes the client.
	Fail(err error)
	// Trouble is told of an error that may concern other clients, too.
	Trouble(err error)
	// LookAgain waits for a fresh look at the topology, and a little; Pause for so long. Both end with the client.
	LookAgain()
	Pause(d time.Duration)
}

// Link is a connection for messages.
type Link struct {
	*dedicated.Conn
	Relay func(cmd redcon.Command, c *commandtable.Command) // sends the client's own command there
	End   func()                                            // closes it; no reply is pending there
}

// Config is what a client's subscriptions are made of.
type Config struct {
	Host      Host
	Client    *downstream.Conn
	Context   context.Context // ends when the last clients are cut off
	Nodes     *backend.Clustered
	View      *dedicated.View // what CLIENT LIST may see of them
	Spread    int             // a number of the client's, so that clients use different nodes
	Service   upstream.Identity
	Listeners *Listeners
}

// subscriptionConn is one of these connections.
type subscriptionConn struct {
	x       *Subscriptions
	p       Link
	sharded bool
	events  bool // it is for keyspace notifications: see events
	since   time.Time
	id      upstream.Identity // as which it was made, and will be again; written with the turn and subscriptions.mu
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
	where map[dedicated.Subscription]*subscriptionConn
	lost  map[dedicated.Subscription]upstream.Identity // of where, those to be made again
	dead  []*subscriptionConn                          // their connections were lost, why is not known yet
	maker chan struct{}                                // closed when the goroutine that makes them again has ended; nil: there is none
	over  bool
}

// New makes the subscriptions of a client that has none yet.
func New(c Config) *Subscriptions {
	x := &Subscriptions{Config: c, turn: make(chan struct{}, 1), where: map[dedicated.Subscription]*subscriptionConn{}, lost: map[dedicated.Subscription]upstream.Identity{}}
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
	clear(x.where)
	x.count()
	x.mu.Unlock()
}

// count shows how many subscriptions there are; mu is held, here and below.
func (x *Subscriptions) count() {
	var n [3]int32
	for sub := range x.where {
		n[sub.Kind]++
	}
	v := x.View
	v.Channels.Store(n[dedicated.OfChannel])
	v.Patterns.Store(n[dedicated.OfPattern])
	v.Shards.Store(n[dedicated.OfShard])
}

// number is what Redis counts in the confirmations of a kind.
func (x *Subscriptions) number(k dedicated.SubscriptionKind) int {
	n := 0
	for sub := range x.where {
		if (sub.Kind == dedicated.OfShard) == (k == dedicated.OfShard) {
			n++
		}
	}
	return n
}

// names are what is subscribed to of a kind.
func (x *Subscriptions) names(k dedicated.SubscriptionKind) (names []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for sub := range x.where {
		if sub.Kind == k {
			names = append(names, sub.Name)
		}
	}
	slices.Sort(names)
	return names
}

// confirm is the confirmation of a subscription, or of its end; name nil: there was none.
func (x *Subscriptions) confirm(out []byte, proto int, verb string, k dedicated.SubscriptionKind, name []byte) []byte {
	out = resp.AppendBulkString(resp.AppendPush(out, proto, 3), verb)
	if name == nil {
		out = resp.AppendNull(out, proto)
	} else {
		out = resp.AppendBulk(out, name)
	}
	return resp.AppendInt(out, int64(x.number(k)))
}

// take is the turn; false: the session has ended.
func (x *Subscriptions) take() bool {
	select {
	case x.turn <- struct{}{}:
		return true
	case <-x.ctx.Done():
		return false
	}
}

func (x *Subscriptions) giveTurn() { <-x.turn }

// live are the connections there are. Who has the turn may use them, and here and below nobody else.
func (x *Subscriptions) live() []*subscriptionConn {
	x.all = slices.DeleteFunc(x.all, func(e *subscriptionConn) bool {
		return e.p.Released()
	})
	return x.all
}

// keep has a connection stay until rest; false: it is gone.
func (c *subscriptionConn) keep() bool {
	return !c.p.Hold().Released
}

// rest gives a connection back that nothing is subscribed to on.
func (c *subscriptionConn) rest() {
	c.p.Release()
}

// open finds a connection of an identity, or makes one, at a node if it is for sharded channels, else at any. It is kept until rest.
func (x *Subscriptions) open(id upstream.Identity, sharded bool, at *cluster.Node) (*subscriptionConn, error) {
	for _, e := range x.live() {
		if !e.events && e.sharded == sharded && e.id == id && (!sharded || e.p.Node == at) && e.keep() {
			return e, nil
		}
	}
	p, err := x.Host.Connect(x.ctx, id, at)
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
	if v := x.events.Load(); v != nil {
		defer v.wake() // some may have ended, or been refused
	}
	if kind := slices.Index(dedicated.UnsubscribeVerbs[:], c.Name); kind >= 0 {
		x.unsubscribe(c, dedicated.SubscriptionKind(kind), names)
		return
	}
	kind := dedicated.SubscriptionKind(slices.Index(dedicated.SubscribeVerbs[:], c.Name))
	if len(names) == 0 {
		x.Host.Fail(&upstream.ReplyError{Line: commandtable.WrongArity(c.Name)})
		return
	}
	for len(names) > 0 && !x.Client.Over() {
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

// subscribe has names subscribed to at one node; false: the client has been told why not.
func (x *Subscriptions) subscribe(c *commandtable.Command, kind dedicated.SubscriptionKind, names [][]byte) bool {
	if err := x.Host.Refused(); err != nil {
		x.Host.Fail(err)
		return false
	}
	slot := noSlot
	if kind == dedicated.OfShard {
		slot = cluster.Slot(names[0])
	} else {
		x.subscribeEvents(kind, names)
	}
	var to *cluster.Node
	for until := time.Now().Add(x.Nodes.RetryFor()); ; {
		at := to
		if to = nil; at == nil {
			at = x.home(slot)
		}
		refusal, from, err := x.ask(c, names, at)
		done := len(refusal) == 0 && err == nil
		switch {
		case done || x.Client.Over():
			return done
		case backend.NoRetry(err), err == nil && !dedicated.IsRedirect(refusal), time.Now().After(until):
			if err != nil {
				x.Host.Fail(err)
				x.Host.Trouble(err)
			}
			x.Host.Answer(func(out []byte) []byte { return append(out, refusal...) })
			return false
		}
		if next, ask, ok := x.Nodes.Redirect(refusal, slot, from); ok && !ask && next != nil {
			to = next
			continue
		}
		x.Host.LookAgain()
	}
}

// home is where a slot's channels are subscribed to, or, noSlot, all others; nil: nowhere.
func (x *Subscriptions) home(slot int) *cluster.Node {
	snapshot := x.Nodes.Snapshot()
	if slot == noSlot {
		return snapshot.Any(x.Spread)
	}
	return snapshot.Owner(slot)
}

// ask has the client's own command run at a node. What is confirmed goes to the client; refusal is an error of Redis'.
func (x *Subscriptions) ask(c *commandtable.Command, names [][]byte, at *cluster.Node) (refusal []byte, from *cluster.Node, err error) {
	if at == nil {
		return nil, nil, &upstream.NotSentError{Cause: errNotServed}
	}
	e, err := x.open(x.Host.Identity(), c.Name == dedicated.SubscribeVerbs[dedicated.OfShard], at)
	if err != nil {
		return nil, at, err
	}
	defer e.rest()
	return x.sent(e, c, names)
}

// sent is ask on a connection there is.
func (x *Subscriptions) sent(e *subscriptionConn, c *commandtable.Command, names [][]byte) (refusal []byte, from *cluster.Node, err error) {
	words := append([][]byte{[]byte(c.Name)}, names...)
	var got []byte
	o := &dedicated.Reply{Cmd: c, Kind: c.Conn, Got: &got, Names: texts(names)}
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

// unsubscribe ends subscriptions; without names all of a kind. What is subscribed to nowhere is confirmed here.
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
		e := x.where[sub]
		x.mu.Unlock()
		if e != nil && name != nil {
			refusal, _, err := x.sent(e, c, [][]byte{name})
			if err == nil && len(refusal) == 0 {
				continue
			}
		}
		x.mu.Lock()
		delete(x.where, sub)
		delete(x.lost, sub)
		x.count()
		confirmation := x.confirm(nil, x.Host.Identity().Proto, c.Name, kind, name)
		x.mu.Unlock()
		x.Host.Push(confirmation)
	}
}

// Asks has a command answered as by a connection with subscriptions, by one of them; false: none is there just now.
func (x *Subscriptions) Asks(cmd redcon.Command, c *commandtable.Command) bool {
	for until := time.Now().Add(x.Nodes.RetryFor()); x.take(); x.Host.Pause(askPause) {
		asked := x.askAny(cmd, c)
		x.giveTurn() // to those that make them again
		if asked || time.Now().After(until) || x.Client.Over() {
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
