// Package own has the connections to Redis that one client has to itself: for transactions, watched keys, commands
// that may wait, subscriptions, tracking, and FENCED. It decides when there is one and at which node, what becomes of
// a transaction or of a waiting command when its slot moves, and what becomes of a client whose connection is lost.
// One Redis and the nodes of a cluster stand behind it, and nobody above asks which.
package own

import (
	"sync/atomic"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/fenced"
	"github.com/lockproxy/lockproxy/internal/subscription"
	"github.com/lockproxy/lockproxy/upstream"
)

// Common is what the Connections of a process share.
type Common struct {
	*backend.Common
	Backend   backend.Backend
	Listeners subscription.Listeners          // of a cluster
	Timeout   time.Duration                   // see dedicated.Config
	Client    func(number int64) *Connections // finds another client's by its number; nil: it has gone. Any goroutine may call it
}

// Connections are those of one client. Its goroutine alone uses them, but for what other clients and goroutines of
// connections do.
type Connections struct {
	*Common
	View  dedicated.View // what others may see of the client's own connection
	Waits dedicated.View // and of the one on which it WAITs beside that, before one Redis

	client    *client.Client
	forwarder *backend.Forwarder
	path      path
	next      []redcon.Command           // those that follow the present one in the same pipeline
	conn      *conn                      // nil: there is none
	request   atomic.Pointer[chan int64] // somebody wants it to have one
	lost      lostState                  // by one before

	nodes         *backend.Clustered          // nil: one Redis
	subscriptions *subscription.Subscriptions // before a cluster they have connections of their own; nil: none yet
}

// path is what differs between one Redis and the nodes of a cluster.
type path interface {
	// run runs a command if it concerns the client's own connection p, which may be nil, or needs one. here: lockproxy
	// answers the command, unless it is in a transaction. false: the command is to be answered, or forwarded, as
	// usual.
	run(p *conn, cmd redcon.Command, c *commandtable.Command, here bool) (taken bool)
	// connect makes a connection for what needs no certain node.
	connect() (*conn, error)
	// masters has run use a connection to each master as id, which the client need not be; once more if one is no
	// master any longer.
	masters(id upstream.Identity, run func(conns) error) error
	// fenced runs f on a connection beside the client's own.
	fenced(f *fenced.Fence) error
}

// New returns the Connections of a client, of which there is none yet.
func New(common *Common, c *client.Client, f *backend.Forwarder) *Connections {
	o := &Connections{Common: common, client: c, forwarder: f}
	o.path = &single{o}
	if nodes, many := common.Backend.(*backend.Clustered); many {
		o.nodes, o.path = nodes, &clustered{o}
	}
	return o
}

// Concerns says that a command concerns the client's own connections, or may: then Run is to be asked.
func (o *Connections) Concerns(c *commandtable.Command) bool {
	return c.Conn.Starts() || o.any() || o.mutes(c)
}

// Run runs a command that Concerns the client's own connections; next are those that follow it in the same pipeline.
// here: lockproxy answers the command, unless it is in a transaction. false: the command is to be answered, or
// forwarded, as usual; all earlier replies have come if that matters.
func (o *Connections) Run(cmd redcon.Command, next []redcon.Command, c *commandtable.Command, here bool) (taken bool) {
	o.next = next
	p := o.current()
	switch {
	case o.lost.loss != lostNothing && o.afterLoss(p, cmd, c),
		c.Conn == commandtable.ConnWait && o.waits(p, cmd, c):
		taken = true
	default:
		taken = o.path.run(p, cmd, c, here)
	}
	o.next = nil
	if o.conn != nil && !taken { // it may last
		o.conn.Listen()
	}
	return taken
}

// mutes says that the client is a subscriber in RESP2, as far as replies have come, to which Redis refuses most commands,
// and c is no exception.
func (o *Connections) mutes(c *commandtable.Command) bool {
	return o.client.Identity().Proto == 2 && o.View.Subscribed() && !c.Always
}

// any says that the client has a connection of its own, or had one and that is of importance.
func (o *Connections) any() bool {
	return o.conn != nil || o.lost.loss != lostNothing
}

// Has says that the client has a connection of its own.
func (o *Connections) Has() bool { return o.conn != nil }

// Blocked says that a command of the client's may wait there. Any goroutine may call it.
func (o *Connections) Blocked() bool { return o.View.Blocked.Load() || o.Waits.Blocked.Load() }

// Notified is called where the client's goroutine reads its next command: Settle, and a look at what else has become of the
// client's own connection.
func (o *Connections) Notified() {
	if p := o.conn; p != nil {
		p.Look()
	}
	o.Settle()
}

// Settle sends what is queued, and waits until all replies have come, or the client has gone. Then connections for which
// Redis keeps nothing are given back, and what comes by itself on the others is passed on.
func (o *Connections) Settle() {
	if p := o.conn; p != nil && p.Wait() {
		if p = o.rest(); p != nil {
			p.Listen()
		}
	}
	if o.subscriptions != nil {
		o.subscriptions.Rest()
	}
}

// rest gives the client's own connection back if Redis keeps nothing for it, and returns the one that the client still
// has, or nil. No reply is pending.
func (o *Connections) rest() *conn {
	p := o.current()
	if p != nil && p.giveBack() {
		o.conn, p = nil, nil
	}
	return p
}

// current returns the client's own connection, nil if it has none, or has lost it.
func (o *Connections) current() *conn {
	p := o.conn
	if p == nil {
		return nil
	}
	db, over := p.Now()
	if db != o.client.Identity().DB { // SELECT within a transaction
		id := o.client.Identity()
		id.DB = db
		o.forwarder.SetIdentity(id)
	}
	if !over {
		return p
	}
	o.conn = nil
	p.left()
	if lost := p.Lost(); lost != nil {
		o.lose(lossOf(lost), lost.Cause)
	}
	return nil
}

// open gives the client a connection of its own.
func (o *Connections) open() (*conn, error) {
	p, err := o.path.connect()
	if err == nil {
		o.conn = p
	}
	return p, err
}

// End ends all connections. It waits for replies first, so that outcomes are known, but not for a command that waits:
// that is unblocked, if the client holds locks.
func (o *Connections) End() {
	if p := o.conn; p != nil {
		o.conn = nil
		p.end()
	}
	o.dropSubscriptions()
}

// Reset closes all connections with their state. No reply is pending there.
func (o *Connections) Reset() {
	o.drop()
	o.lost.clear(o)
	o.dropSubscriptions()
}

// dropSubscriptions ends the subscriptions that have connections of their own.
func (o *Connections) dropSubscriptions() {
	if x := o.subscriptions; x != nil {
		o.subscriptions = nil
		x.Close()
	}
}

// drop closes the client's own connection with all its state; no reply is pending there.
func (o *Connections) drop() {
	if p := o.conn; p != nil {
		o.conn = nil
		p.drop()
	}
}
