// Package upstream talks to one Redis address, on two planes.
//
// The data plane carries clients' commands as bytes: a Node has one shared Pipe
// for each Identity in use, on which many sessions' commands are pipelined, and
// private Pipes, which one session has at a time, for long requests and replies. The control plane is the rueidis
// clients of a Control, for scripts, renewals, topology and pub/sub.
//
// Every failure says what Redis can have seen: NotSentError nothing, LostError
// that it is unknown, ReplyError that Redis itself refused.
package upstream

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// Defaults of NodeOptions.
const (
	DefaultDialTimeout = 2 * time.Second
	defaultMaxInflight = 8 << 20
)

// NodeOptions are a Node's settings; zero fields stand for the defaults.
type NodeOptions struct {
	DialTimeout time.Duration // for connection, TLS and handshake together
	MaxInflight int64         // bytes of unanswered requests on one connection; more must wait
	Budget      *Budget       // of connections, shared with other nodes; nil: they have no bound
	Logger      *slog.Logger  // nil: slog.Default()
}

// Node is one Redis address and the connections there.
type Node struct {
	// Static after construction.
	target  Target
	opts    NodeOptions
	ctx     context.Context // ends when the node is closed
	stop    context.CancelFunc
	running sync.WaitGroup // the pipes' goroutines

	auths auths // has locks of its own

	contact contact

	mu     sync.Mutex // guards all below; taken before a pipe's mu
	closed bool
	kept
	refused func(Identity, *ReplyError)
}

// contact is what is known of whether Redis can be reached.
type contact struct {
	told atomic.Bool               // the log says that there is no connection
	lost atomic.Pointer[time.Time] // when a pipe lost its connection last
}

// left is for how long Redis is still waited for, because a pipe of the node, whoever used it, lost its connection less
// than a second ago. A client that connects anew then waits for Redis as a client does that was there before.
func (c *contact) left() time.Duration {
	at := c.lost.Load()
	if at == nil {
		return 0
	}
	return patience - time.Since(*at)
}

func (c *contact) lately() bool { return c.left() > 0 }

// NewNode returns a Node that connects when it is first asked to.
func NewNode(t Target, o NodeOptions) *Node {
	if o.DialTimeout <= 0 {
		o.DialTimeout = DefaultDialTimeout
	}
	if o.MaxInflight <= 0 {
		o.MaxInflight = defaultMaxInflight
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	n := &Node{target: t, opts: o, kept: kept{shared: map[Identity]*Pipe{}, alone: map[keeps]struct{}{}}}
	n.ctx, n.stop = context.WithCancel(context.Background())
	n.auths.logins = newLogins()
	o.Budget.addNode(n)
	return n
}

// Open returns the shared pipe of id, connected and authenticated: a
// *ReplyError when Redis refuses id, a *NotSentError when Redis is out of
// reach or ctx ends first, a *FullError when the Budget has no room for it.
// Opening a connected pipe costs no system call. Where there is no pipe that
// only makes things quicker, and none at once, it is that for commands.
func (n *Node) Open(ctx context.Context, id Identity) (*Pipe, error) {
	if id.quicker(sharedPipe) {
		soon, cancel := context.WithTimeoutCause(ctx, quickerFor, errNoLink)
		p, err := n.open(soon, id, sharedPipe)
		if cancel(); err == nil {
			return p, nil
		}
		id.For = Commands
	}
	return n.open(ctx, id, sharedPipe)
}

// Private returns a pipe that nobody shares until it is released, with the
// errors of Open: one that was given back, or a new one. Replies on it reach
// the Sink in pieces as they come, so that their size costs no memory and a
// slow client slows nobody else. When it breaks it is made again, as a shared
// pipe is: it must not carry state that Redis keeps per connection.
func (n *Node) Private(ctx context.Context, id Identity) (*Pipe, error) {
	return n.open(ctx, id, privatePipe)
}

// Aside is Private for one question of the proxy's own: the Budget does not count the pipe, and Release closes it, also
// while the question is under way.
func (n *Node) Aside(ctx context.Context, id Identity) (*Pipe, error) {
	own := ownShare()
	p, err := n.pipe(id, asidePipe, own)
	if err != nil {
		own.give()
		return nil, err
	}
	return n.connected(ctx, p)
}

func (n *Node) open(ctx context.Context, id Identity, kind pipeKind) (*Pipe, error) {
	p, err := n.use(id, kind)
	if IsFull(err) && kind == privatePipe && id.For == Scripts {
		p, err = n.useWhenFree(ctx, id, err)
	}
	if IsFull(err) && !id.quicker(kind) {
		telemetry.UpstreamRefused.Add(1)
	}
	if err != nil {
		return nil, err
	}
	return n.connected(ctx, p)
}

const (
	quickerFor = 200 * time.Millisecond // for how long a connection is waited for that only makes things quicker

	// A script waits for roomFor for a private pipe. Many may wait, so their pauses grow from roomFirst to roomMost.
	roomFor   = 30 * time.Second
	roomFirst = 5 * time.Millisecond
	roomMost  = 100 * time.Millisecond
)

// useWhenFree is use of a private pipe for a script, which may share no connection: it waits until one is given back.
// full is why there is none yet.
func (n *Node) useWhenFree(ctx context.Context, id Identity, full error) (p *Pipe, err error) {
	ctx, cancel := context.WithTimeout(ctx, roomFor)
	defer cancel()
	pause := retry.Backoff{First: roomFirst, Most: roomMost}
	for err = full; IsFull(err) && retry.Sleep(ctx, pause.Next(), nil); {
		p, err = n.use(id, privatePipe)
	}
	return p, err
}

// use counts one more use of a pipe of id's, and makes the pipe if there is none.
func (n *Node) use(id Identity, kind pipeKind) (*Pipe, error) {
	p, err := n.pipe(id, kind, nil)
	if p != nil || err != nil {
		return p, err
	}
	counted, err := n.opts.Budget.admit(id, kind) // may close idle pipes, and takes mu for that
	if err != nil {
		return nil, err
	}
	p, err = n.pipe(id, kind, counted)
	if p == nil || p.share != counted { // another goroutine has made the pipe, or given it back, meanwhile
		counted.give()
	}
	return p, err
}

// pipe is a pipe of id's, with one more user. If there is none it is made as counted's, or is nil if that is nil.
func (n *Node) pipe(id Identity, kind pipeKind, counted *share) (*Pipe, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, &NotSentError{Cause: ErrClosed}
	}
	p := n.shared[id]
	if kind != sharedPipe {
		p, _ = n.find(id, kind).(*Pipe)
	}
	switch {
	case p != nil:
		n.taken(p)
		p.users++
	case counted != nil:
		p = newPipe(n, id, kind, counted)
		if kind == sharedPipe {
			n.shared[id] = p
		} else {
			n.alone[p] = struct{}{}
		}
		n.running.Go(p.keepConnected)
	}
	return p, nil
}

// connected waits until p has a connection. After an error it has released p.
func (n *Node) connected(ctx context.Context, p *Pipe) (*Pipe, error) {
	if p.Connected() {
		return p, nil
	}
	lately := n.contact.lately()
	if lately {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, patience, errNoLink)
		defer cancel()
	}
	if _, err := p.awaitLink(ctx, lately, !p.id.quicker(p.kind)); err != nil {
		n.release(p)
		return nil, err
	}
	return p, nil
}

// whileOpen is a ctx that ends when the node is closed, too.
func (n *Node) whileOpen(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if n.ctx.Err() != nil { // AfterFunc runs a little later
		cancel(ErrClosed)
	}
	stop := context.AfterFunc(n.ctx, func() { cancel(ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// patiently calls do, which may be done twice, again for as long as Redis may be back soon, as for commands. The error
// is a *ReplyError when Redis refuses, else a *NotSentError.
func (n *Node) patiently(ctx context.Context, do func(context.Context) error) error {
	for {
		err := do(ctx)
		if err == nil {
			return nil
		}
		left := min(timeLeft(ctx), n.contact.left())
		if (Attempt{err, true, left}).Outcome() == SendAgain {
			retry.Sleep(ctx, firstDelay, nil)
			continue
		}
		if ctx.Err() != nil && Refused(err) == nil {
			err = context.Cause(ctx)
		}
		return notSent(err)
	}
}

// release ends one use of p.
func (n *Node) release(p *Pipe) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p.users--
	switch {
	case p.users > 0 || n.closed:
	case p.kind != asidePipe && p.Connected():
		n.rest(p)
	case p.kind == sharedPipe && p.state().phase == backingOff:
		// The pipe stays, so that its back-off holds for the next Open too: otherwise a client that is refused again
		// and again would make a connection each time. When the back-off is over, the pipe forgets itself.
	default:
		n.forgetConn(p)
		p.end()
	}
}

// dropUnused drops p if nobody uses it.
func (n *Node) dropUnused(p *Pipe) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.users == 0 {
		n.kept.dropUnused(p)
	}
}

// forgetIdle forgets p, which has no connection, if nobody uses it.
func (n *Node) forgetIdle(p *Pipe) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.users > 0 {
		return false
	}
	n.forgetConn(p)
	return true
}

// OnRefused makes the node call f, from then on, whenever a connection that the clients of a login share was lost, and
// Redis refuses it when it is made again. f may run in several goroutines at once, and must not block.
func (n *Node) OnRefused(f func(Identity, *ReplyError)) {
	n.mu.Lock()
	n.refused = f
	n.mu.Unlock()
}

// tellRefused calls OnRefused's function if err refuses what the identity's clients have lost. Redis does not end
// connections when a password changes, or a token is over: so what a client could not have in addition concerns nobody
// else, and the loss of a connection that only makes things quicker concerns them if there is no other. A replica's
// refusal says nothing of the identity, since a replica has users of its own.
func (p *Pipe) tellRefused(err error) {
	re := Refused(err)
	if re == nil || !p.ofClients() || !p.state().connected || p.id.quicker(p.kind) && p.node.loggedIn(p.id) {
		return
	}
	p.node.mu.Lock()
	f := p.node.refused
	p.node.mu.Unlock()
	if f != nil {
		f(p.id.login(), re)
	}
}

// ofClients says that all clients of one identity share the pipe. An identity with a Secret is the proxy's own, not a
// client's, and so are its Questions.
func (p *Pipe) ofClients() bool {
	return p.kind == sharedPipe && p.id.Secret == nil && p.id.For != Questions
}

// eachLink calls do for the connection that each pipe has at present.
func (n *Node) eachLink(do func(id Identity, l *link)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept.eachLink(do)
}

// Upstream says of what kind the node's address is ("redis" or "sentinel"), which address it stands for at present (""
// when that is not known yet), and how often that has changed.
func (n *Node) Upstream() (kind, addr string, switches int64) {
	kind, addr = "redis", n.target.Addr
	if n.target.Sentinels != nil {
		kind = "sentinel"
	}
	if r := n.target.Resolver; r != nil {
		addr, switches = r.Present()
	}
	return kind, addr, switches
}

// Close closes all connections and waits until their goroutines have ended.
// Requests under way end with a *NotSentError or *LostError.
func (n *Node) Close() {
	n.opts.Budget.dropNode(n)
	n.mu.Lock()
	n.closed = true
	n.stop() // the pipes, too
	for n.dropOldest(func(keeps) bool { return true }) {
	}
	for c := range n.alone {
		c.end()
	}
	n.mu.Unlock()
	n.eachLink(func(_ Identity, l *link) { l.fail(ErrClosed) })
	n.running.Wait()
	n.auths.closeIdle()
}
