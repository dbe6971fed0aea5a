// Package dedicated is a connection upstream that one client has to itself, for as long as Redis keeps something for it
// there: a transaction, watched keys, subscriptions, tracking, a command that waits. It follows from the replies what that
// is, and passes the replies on to the client as they came. Whose it is, is its Host.
package dedicated

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	flushAt   = 64 << 10 // bytes gathered before they are written
	keepBytes = 2 * flushAt

	// LastReplies is for how long the pending replies of a client that has gone are waited for.
	LastReplies = 2 * time.Second
)

// ErrGone is why a command has no reply when the connection or the client had gone before.
var ErrGone = errors.New("the client of the dedicated connection has gone")

// Host is the client that a connection belongs to. Its first methods are called by whoever uses the connection, the others with the
// connection's lock held: they must not use the connection, nor block.
type Host interface {
	// Silent says that the client wants no replies just now.
	Silent() bool
	// WriteReplies writes what the client was answered past the connection.
	WriteReplies()
	// Watch runs run with a context that ends when the client goes away.
	Watch(run func(ctx context.Context))
	// NotSent answers a command that came as the connection had just been lost.
	NotSent(e *Reply)

	// Shutting notes that so many more SHUTDOWNs are not answered yet.
	Shutting(more int)
	// RightsChanged is told that commands which may change users' rights have been run; last: no other is pending.
	RightsChanged(last bool)
	// Timed is told how long a command of the client's took from being sent to its reply; call is the beginning of what was sent.
	Timed(c *commandtable.Command, call string, took time.Duration)
	// Adopt is told what the client's commands have set.
	Adopt(pauses time.Duration, settings []Setting)
	// Idle is told that no reply is pending, and to which client invalidations are redirected; 0: to none.
	Idle(redirected int64)
	// Left is told that the connection is given back or lost.
	Left()
	// Loss says what a lost connection means: whether its client is closed for it, and else what each pending reply is.
	Loss(err error) (closes bool, line string)
	// Lost is told that the connection was lost, and whether that closes the client.
	Lost(err error, closes bool)
	// Remake is told to make again what was lost.
	Remake(what Remains)
}

// Interceptor handles what comes on a connection that is used for subscriptions only. Its methods are called with the connection's lock held.
type Interceptor interface {
	// Confirmed takes a confirmation. e is the oldest command without its reply, nil if there is none. It appends what the client
	// is told to out, and says whether e asked for it.
	Confirmed(frame []byte, e *Reply, proto int, out []byte) (told []byte, asked bool)
	// Others says whether a message comes to the client by another connection as well; known is false when more of it is needed.
	Others(frame []byte) (others, known bool)
	// Ended is told that the connection was lost.
	Ended()
}

// Config is what a connection is made of.
type Config struct {
	Host    Host
	Client  *downstream.Conn // whose replies these are
	Context context.Context  // ends when the last clients are cut off
	Timeout time.Duration    // for Redis' reply to a command; 0: none
	View    *View            // what CLIENT LIST and others may see of it
	Node    *cluster.Node    // where it is, in a cluster; else nil
}

// Conn is a client's connection of its own. Commands go out as the client sends them, without waiting for replies; what comes
// back goes to the client from the connection's own goroutine (relay.go). When no reply is pending and no state is left, the
// connection is given back.
type Conn struct {
	Config
	conn  *upstream.Dedicated
	queue []byte // commands to be sent together; the client's goroutine only

	mu           sync.Mutex // guards all below
	changed      sync.Cond  // a reply has become pending, or the connection is over
	pending      pending
	replyTimeout replyTimeout
	state        State
	life         life
	interceptor  Interceptor // of a connection for subscriptions only; else nil
	frame        frame       // at hand
	out          output
}

// life is the state of a connection between its making and its end.
type life struct {
	held     bool  // it is about to be used: it is not given back now
	released bool  // given back or lost: its user must forget it
	ended    bool  // it was lost
	lost     *Lost // by that
	making   bool  // what was lost before has yet to be made again
	tainted  bool  // not to be used by another client
	doubt    bool  // with a command whose outcome is unknown
}

// New is a connection that is yet to be made by Connect.
func New(c Config) *Conn {
	p := &Conn{Config: c, pending: pending{kept: c.Client.PendingReplies(), host: c.Host}, out: output{to: c.Client.Passage()}, life: life{held: true}}
	p.changed.L = &p.mu
	return p
}

// Connect makes the connection at a node, for a client of that name. It is held until Release.
func (p *Conn) Connect(ctx context.Context, id upstream.Identity, n *upstream.Node, name string) (err error) {
	p.mu.Lock() // no reply is looked at before conn is there
	p.state = State{proto: id.Proto, db: id.DB, kept: Restorable{wanted: p.Node == nil}}
	if p.conn, err = n.Dedicate(ctx, id, p); err == nil {
		p.show()
	}
	p.mu.Unlock()
	if err == nil && name != p.conn.Name {
		p.Rename(name)
	}
	return err
}

// Intercept has subscriptions made and lost on this connection told to i.
func (p *Conn) Intercept(i Interceptor) {
	p.mu.Lock()
	p.interceptor = i
	p.mu.Unlock()
}

// RedisID is the connection's number at Redis; 0: Redis does not tell.
func (p *Conn) RedisID() int64 { return p.conn.RedisID() }

// Rename gives the connection the client's name at Redis.
func (p *Conn) Rename(name string) {
	p.Tell("CLIENT", "SETNAME", name)
	p.conn.Name = name
}

// Authenticated notes that it has logged in.
func (p *Conn) Authenticated() { p.conn.Authenticated() }

// Taint has the connection closed in the end, so that no other client uses it.
func (p *Conn) Taint() {
	p.mu.Lock()
	p.life.tainted = true
	p.mu.Unlock()
}

// Locked runs f while nothing is received, so that f may change what Host's methods use.
func (p *Conn) Locked(f func(released bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p.life.released)
}

// Status is what the client's other commands depend on.
type Status struct {
	Multi, Watch, Tracking bool
	Subscribed             bool
	Mute                   bool // a subscriber in RESP2: most commands are refused
	None                   bool // it is as if nobody had used it
	Ended                  bool // it was lost
	Blocked                bool // a command that may wait is under way
	Pending                int  // replies
	Redirect               Redirect
	Caching                string // what CLIENT CACHING has just said of the next command
	Refused                []byte // the last redirect that was answered QUEUED
}

// Status is the present state.
func (p *Conn) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &p.state
	return Status{Multi: t.multi, Watch: t.watch, Tracking: t.tracking.on, Subscribed: t.subscribed() > 0, Mute: t.mute(), None: t.none(),
		Ended: p.life.ended, Blocked: p.pending.blocked(), Pending: len(p.pending.all), Redirect: t.tracking.redirect, Caching: t.tracking.caching, Refused: t.refused}
}

// InTransaction says whether the client is in a transaction.
func (p *Conn) InTransaction() bool { return p.Status().Multi }
