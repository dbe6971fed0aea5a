// Package dedicated is a connection upstream that one client has to itself, for as long as Redis keeps state for it
// there: a transaction, watched keys, subscriptions, tracking, a command that waits. It learns that state from the
// replies, which it passes on to the client as they came.
package dedicated

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	flushAt   = 64 << 10 // bytes gathered before they are written
	keepBytes = 2 * flushAt
	idleBytes = 4 << 10 // of that, kept while no reply is pending

	// LastReplies is for how long the pending replies of a client that has gone are waited for.
	LastReplies = 2 * time.Second
)

// ErrGone is why a command has no reply if the connection or the client was already gone.
var ErrGone = errors.New("the client of the dedicated connection has gone")

// Interceptor handles what comes on a connection that is used for subscriptions only. Its methods are called by the
// goroutine that reads, which is not always the client's.
type Interceptor interface {
	// Confirmed takes a confirmation. e is the oldest command without its reply, nil if there is none. It returns what
	// the client is told, and whether e asked for it.
	Confirmed(c Confirmation, e *Reply, proto int) (told []byte, asked bool)
	// Others says whether a message comes to the client by another connection as well; known is false when more of it
	// is needed.
	Others(frame []byte) (others, known bool)
}

// Config is what a connection is made of.
type Config struct {
	Client *client.Client // whose replies these are
	View   *View          // what CLIENT LIST and other goroutines may see of it
	Node   *cluster.Node  // where it is, in a cluster; else nil

	// RightsChanged is called when commands that may change users' rights have been run, or may have been, as their
	// replies are lost; last: no other reply is pending. It must not use the connection, nor block.
	RightsChanged func(last bool)
	// Timeout is for how long Redis may send nothing, or take nothing, while it is waited for. A command that waits there
	// has its own time besides. 0: for as long as it likes.
	Timeout time.Duration
}

// Conn is a client's connection of its own. The client's goroutine sends the commands, and reads their replies at the
// latest when it has worked off what the client has sent: see Wait. They go to the client as they come. What comes by
// itself is passed on by a goroutine of its own while the client's is at something else: see Listen. The client's
// goroutine alone calls the methods, but for those of which it is said that any may.
type Conn struct {
	Config
	conn   *upstream.Dedicated
	queue  []byte        // commands to be sent together
	stop   func() bool   // the client's end interrupts no read any more; false: it has done so, or is about to; nil: it never did
	relay  chan struct{} // closed when the goroutine of Listen has ended; nil: there is none
	halted atomic.Bool   // the goroutine of Listen is to end

	// Whoever reads owns all below.
	said  conversation
	frame incoming
	out   output
	left  []byte             // what came behind the answer to HELLO, and is looked at later
	kept  downstream.Account // of the bytes that are kept for it

	over    bool  // the connection is not the client's any more: it is given back, closed, or lost
	tainted bool  // not to be used by another client
	unknown bool  // it ended with a command whose outcome is unknown
	lost    *Lost // what was lost with it, if its client stays; nil: it is not lost
}

// New returns a Conn without its connection, which Connect makes.
func New(c Config) *Conn {
	return &Conn{Config: c, kept: c.Client.Writer.NewAccount(), out: output{to: c.Client.Writer.Passage()}}
}

// Connect makes the connection at a node, for a client of that name.
func (p *Conn) Connect(ctx context.Context, id upstream.Identity, n *upstream.Node, name string) (err error) {
	p.said.state = State{proto: id.Proto, db: id.DB}
	if p.Node == nil {
		p.said.state.subs.all = map[Subscription]struct{}{}
	}
	if p.conn, err = n.Dedicate(ctx, id); err != nil {
		return err
	}
	p.show()
	if name != p.conn.Name {
		p.Rename(name)
	}
	return nil
}

// Intercept makes the connection one for subscriptions only, which i handles.
func (p *Conn) Intercept(i Interceptor) { p.said.interceptor = i }

// RedisID is the connection's number at Redis; 0: Redis does not tell.
func (p *Conn) RedisID() int64 { return p.conn.RedisID() }

// Rename gives the connection the client's name at Redis, by HELLO, which every user may run.
func (p *Conn) Rename(name string) {
	p.halt()
	p.Send(&Reply{Own: true}, resp.AppendCommand(nil, "HELLO", strconv.Itoa(p.said.state.proto), "SETNAME", name))
	p.conn.Name = name
}

// Authenticated notes that the connection has logged in as id.
func (p *Conn) Authenticated(id upstream.Identity) { p.conn.Authenticated(id) }

// Taint makes the connection be closed in place of being given back, so that no other client uses it.
func (p *Conn) Taint() {
	p.halt()
	p.tainted = true
}

// Status is what the client's other commands depend on.
type Status struct {
	Multi      bool
	Subscribed bool
	Over       bool // it is given back, closed, or lost
	Blocked    bool // a command that may wait is under way
	Redirect   Redirect
	Moved      []byte  // the last redirect that the transaction has met
	Wrong      bool    // Redis has refused to queue something: EXEC aborts the transaction
	Named      *string // what the transaction, as far as it has been sent, calls the client; nil: nothing
}

// Status is the present state.
func (p *Conn) Status() Status {
	p.halt()
	s := &p.said.state
	return Status{Multi: s.multi(), Subscribed: s.subs.total() > 0, Over: p.over, Blocked: p.said.pending.blocks(),
		Redirect: s.tracking.To, Moved: s.moved, Wrong: s.transaction.phase == aborted,
		Named: s.transaction.name}
}

// Now is the present database, which SELECT within a transaction may have changed, and whether the connection is over.
func (p *Conn) Now() (db int, over bool) {
	p.halt()
	return p.said.state.db, p.over
}

// Lost is what was lost with the connection, which is over; nil: nothing, or its client has gone.
func (p *Conn) Lost() *Lost { return p.lost }

// Unknown says that the connection, which is over, ended with a command whose outcome is unknown.
func (p *Conn) Unknown() bool { return p.unknown }
