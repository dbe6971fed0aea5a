// Package own has the connections to Redis that one client has to itself: for transactions, watched keys, commands that may wait,
// subscriptions, tracking, and FENCED. It decides when there is one and at which node, what becomes of a transaction or of a waiting
// command when its slot moves, and what becomes of a client whose connection is lost. One Redis and the nodes of a cluster stand behind
// it, and nobody above asks which.
package own

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/internal/subscription"
	"github.com/lockproxy/lockproxy/upstream"
)

// Host is the client. Only the client's own goroutine calls the methods, except for those below the line that says otherwise.
type Host interface {
	backend.Host
	// Forward sends the earlier commands that have been gathered to be forwarded together, and waits for their replies.
	Forward()
	// Next returns the commands that follow the present one in the same pipeline.
	Next() []redcon.Command
	// Ask asks any node, over another connection.
	Ask(words ...[]byte) ([]byte, error)
	// Answer adds to what the client is answered.
	Answer(add func(out []byte) []byte)
	// Push adds what the client gets even if it wants no replies.
	Push(frame []byte)
	// Fail answers a command that failed with err, or closes the client.
	Fail(err error)
	// Queued returns what Redis gets to queue in a transaction for a command that lockproxy answers otherwise, and the effect of that.
	// name is what the client is called when it is run.
	Queued(c *commandtable.Command, cmd redcon.Command, name string) ([]byte, dedicated.Effect)
	// Selected notes that the client is in another database.
	Selected(db int)
	// Doubt notes that the outcome of a command is unknown.
	Doubt()
	// Watch runs run with a context that ends when the client goes away.
	Watch(run func(ctx context.Context))
	// Locks returns the lock engine's client.
	Locks() *lock.Client

	// All below may be called by any goroutine, with the lock of one of the client's connections held.

	// Client finds another client's connections by its number; nil: it has gone.
	Client(id int64) *Connections
	// TakesPushes says that the client has been answered in RESP3, and knows what a push is. Any goroutine may ask.
	TakesPushes() bool
	// IdentityNow is Identity for other goroutines.
	IdentityNow() upstream.Identity
	// Name returns the name that the client has given itself.
	Name() string
	// Holds says that the client holds a lock; Lockless that it holds none, and has been told of all that it has lost.
	Holds() bool
	Lockless() bool
	// Closes says whether the client is closed, without a reply, for a command that failed with err.
	Closes(err error) bool
	// Timed notes how long Redis took for a command; call is the beginning of what was sent.
	Timed(c *commandtable.Command, call string, took time.Duration)
	// Set notes what the client's commands have set.
	Set(pauses time.Duration, settings []dedicated.Setting)
	// Shutting notes that so many more SHUTDOWNs are not answered yet.
	Shutting(more int)
	// RightsChanged is called with the rights that commands which Redis has answered may have changed.
	RightsChanged(backend.RightsChange)
	// LearnAgain makes the proxy ask Redis again for its commands: another Redis may have taken its place.
	LearnAgain()
}

// Common is what the Connections of a process share.
type Common struct {
	*backend.Common
	Backend   backend.Backend
	Timeout   time.Duration          // for Redis' reply to a command; 0: none
	Listeners subscription.Listeners // of a cluster
}

// Connections are those of one client. Its goroutine alone uses them, but for what other clients and goroutines of connections do.
type Connections struct {
	*Common
	View  dedicated.View // what others may see of the client's own connection
	Waits dedicated.View // and of the one on which it WAITs beside that, before one Redis

	host      Host
	client    *downstream.Conn
	id        int64 // the client's number
	forwarder *backend.Forwarder
	path      path
	conn      *conn                      // nil: there is none
	greeting  []*dedicated.Conn          // have answered a HELLO to which the client has no reply yet
	request   atomic.Pointer[chan int64] // somebody wants it to have one
	lost      lostState                  // by one before
	restore   atomic.Pointer[restore]    // of what it had; nil: that was not lost
}

// path is what differs between one Redis and the nodes of a cluster.
type path interface {
	// run runs a command if it concerns the client's own connection p, which may be nil, or needs one. here: lockproxy answers the
	// command, unless it is in a transaction. false: the command is to be answered, or forwarded, as usual.
	run(p *conn, cmd redcon.Command, c *commandtable.Command, here bool) (taken bool)
	// databases says that there are others than database 0.
	databases() bool
	// connect makes a connection for what needs no certain node.
	connect() (*conn, error)
	// masters has run use a connection to each master as id, which the client need not be; once more if one is no master any longer.
	masters(id upstream.Identity, run func([]*conn) error) error
	// left is called when a connection at that node has ended.
	left(n *cluster.Node)
	// fenced is Fenced for a client whose own connection is p; nil: it has none.
	fenced(p *conn, r lock.HoldRequest, c *commandtable.Command, args [][]byte) error
	// helloSubscriptions has the connections that subscriptions have speak another protocol; dropSubscriptions ends them.
	helloSubscriptions(id upstream.Identity)
	dropSubscriptions()
}

// New returns the Connections of the client with number id, of which there is none yet.
func New(c *Common, h Host, client *downstream.Conn, id int64, f *backend.Forwarder) *Connections {
	o := &Connections{Common: c, host: h, client: client, id: id, forwarder: f}
	if nodes, many := c.Backend.(*backend.Clustered); many {
		o.path = &clustered{Connections: o, nodes: nodes}
	} else {
		o.path = &single{o}
	}
	return o
}

// Run runs a command that concerns the client's own connections. here: lockproxy answers the command, unless it is in a transaction.
// false: the command is to be answered, or forwarded, as usual; all earlier replies have come if that matters.
func (o *Connections) Run(cmd redcon.Command, c *commandtable.Command, here bool) (taken bool) {
	p := o.current()
	taken = o.lost.any() && o.afterLoss(p, cmd, c) || o.waits(p, cmd, c) || o.path.run(p, cmd, c, here)
	o.release()
	return taken
}

// Has says that the client has a connection of its own.
func (o *Connections) Has() bool { return o.conn != nil }

// Flush sends what is queued.
func (o *Connections) Flush() {
	if o.conn != nil {
		o.conn.Flush()
	}
}

// current returns the client's own connection, nil if it has none. The connection is not given back before release.
func (o *Connections) current() *conn {
	p := o.conn
	if p == nil {
		return o.takeRestored()
	}
	held := p.Hold()
	if held.DB != o.host.Identity().DB { // SELECT within a transaction
		o.host.Selected(held.DB)
	}
	if !held.Released {
		return p
	}
	o.conn = nil
	if held.Doubt {
		o.host.Doubt()
	}
	if held.Lost != nil {
		p.forgetQueued()
		o.addLost(*held.Lost)
	}
	return o.takeRestored()
}

// release says that the client's own connection is not about to be used: it may be given back.
func (o *Connections) release() {
	if p := o.conn; p != nil {
		p.Release()
	}
}

// open gives the client a connection of its own.
func (o *Connections) open() (*conn, error) {
	p, err := o.path.connect()
	if err == nil {
		o.conn = p
	}
	return p, err
}

// Attend does what other clients ask of this one, while no command is at work, and gives back a connection that only they needed.
func (o *Connections) Attend() {
	o.serveRequest()
	if o.conn != nil || o.restore.Load() != nil {
		o.current()
		o.release()
	}
}

// FlushReplies waits for the pending replies, so that they come before the error that ends the client's connection, unless a
// command waits.
func (o *Connections) FlushReplies() {
	if p := o.conn; p != nil && !p.Status().Blocked {
		p.awaitLast()
	}
}

// End ends all connections. It waits for replies first, so that outcomes are known, but not for a command that waits: that is
// unblocked, if the client holds locks.
func (o *Connections) End() {
	if p := o.conn; p != nil {
		o.conn = nil
		p.end()
	}
	o.dropRestore()
	o.path.dropSubscriptions()
}

// Reset closes all connections with their state. No reply is pending there.
func (o *Connections) Reset() {
	o.drop()
	o.dropRestore()
	o.lost.clear(o)
	o.path.dropSubscriptions()
}

// drop closes the client's own connection with all its state; no reply is pending there.
func (o *Connections) drop() {
	if p := o.conn; p != nil {
		o.conn = nil
		p.forgetQueued()
		p.drop()
	}
}

// pause waits for d, at most until the client has gone.
func (o *Connections) pause(d time.Duration) {
	ctx := o.clientContext()
	retry.Sleep(o.Context, d, ctx.Done())
}

// clientContext is the context that ends when the client has gone.
func (o *Connections) clientContext() context.Context { return o.client.Context(o.Context) }
