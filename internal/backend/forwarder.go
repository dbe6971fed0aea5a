package backend

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/scriptcache"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Host is the client whose commands are forwarded.
type Host interface {
	// Identity returns the client's present identity.
	Identity() upstream.Identity
	// Adopt makes id, which Redis has accepted, the client's identity. It gives back the Forwarder's connections.
	Adopt(id upstream.Identity)
	// Refused says why Redis does not serve the client; nil: it does. The host forwards nothing of a client that is refused.
	Refused() error
	// Silent says that the client wants no replies just now.
	Silent() bool
	// WriteReplies writes what the client was answered so far.
	WriteReplies()
	// MayHold implements cluster.Holder.
	MayHold(n int) bool
	// ReadsReplicas says that replicas of a cluster may answer what the client reads.
	ReadsReplicas() bool
	// WritesPaused says that Redis holds up writes, so that no client's commands may wait behind those of another.
	WritesPaused() bool
	// Routes returns the routes of the present command table.
	Routes() *Routes
	// Step begins something that may make the client wait, and numbers it.
	Step() uint64
	// Unanswered answers commands to which Redis has sent no reply.
	Unanswered(err error, commands []*commandtable.Command)
	// Trouble is called with the error of a question to Redis that failed.
	Trouble(err error)
}

// Common is what the Forwarders of a process share.
type Common struct {
	Context context.Context   // ends when the last clients are cut off
	Service upstream.Identity // who loads scripts again
	Scripts *scriptcache.Cache
	Lanes   *scriptcache.Lanes
	OwnFor  time.Duration // how long a client keeps a connection for big traffic that it does not use

	// OneLine says that Redis, when it was last asked, wrote the errors of scripts in one line each, whatever a script put into them. Redis
	// 8.2.3 does not: there an error looks like as many replies as its script likes.
	OneLine atomic.Bool

	// Limited says that Redis closes connections that hold many bytes of replies. Then clients do not share one: the reply of one client
	// would close it for all others.
	Limited atomic.Bool

	large largeReplies
}

// Echoes says that an error of c may look like several replies: then what is on the same connection must be this client's.
func (c *Common) Echoes(cmd *commandtable.Command) bool {
	return cmd != nil && (cmd.Echoes || cmd.Script.Runs() && !c.OneLine.Load())
}

// AsService is who the proxy's own questions are asked as.
func (c *Common) AsService() upstream.Identity {
	id := c.Service
	id.DB, id.Proto = 0, 2
	return id
}

// Forwarder is how one client's commands reach Redis on connections that it shares with others. Its client's goroutine alone uses it,
// but for EndWait and Quiet.
type Forwarder struct {
	*Common
	host    Host
	guard   *downstream.Conn
	path    path
	request atomic.Pointer[upstream.Request] // the request that sends its runs, or asks; nil: none yet
	big     bigTraffic
	Spent   time.Duration // how long all forwarded commands took, from sending to the replies; the client's goroutine sets it to 0
}

// path is what differs between one Redis and the nodes of a cluster.
type path interface {
	// forward sends the run, and gathers its replies.
	forward(b *Batch, over way)
	// forwardScripts is forward for a run that runs scripts, over a connection that no ordinary command waits for. known: all of them
	// are known to be quick. It says how long Redis took.
	forwardScripts(b *Batch, known bool) time.Duration
	// reload loads again the scripts that Redis has lost, and sends again the commands that needed them.
	reload(b *Batch, lost lostScripts, send func() time.Duration)
	// ask asks one node; askAll asks each node that has keys of its own.
	ask(words [][]byte, at Place) ([]byte, error)
	askAll(words [][]byte) ([]resp.Reply, error)
	// askKeys asks several things at once, each of the node that has the key behind its command's name.
	askKeys(all [][][]byte) (replies [][]byte, err error)
	// instead returns what answers c in place of one node; nil: nothing does.
	instead(c *commandtable.Command) func(words [][]byte) ([]byte, error)
	hello(id upstream.Identity) (resp.Reply, error)
	selectDB(id upstream.Identity) ([]byte, error)
	// show opens a shared connection as the client's user.
	show(ctx context.Context)
	// leave gives connections back: all, or those that big traffic alone needs.
	leave(big bool)
}

// NewForwarder returns the Forwarder to b of client h.
func NewForwarder(b Backend, c *Common, h Host, guard *downstream.Conn) *Forwarder {
	f := &Forwarder{Common: c, host: h, guard: guard}
	f.path = b.path(f)
	return f
}

// Forward sends the run of b, waits for its replies, and lets the host answer the commands that Redis did not.
func (f *Forwarder) Forward(b *Batch) {
	over := shared
	if f.Limited.Load() || f.big.wanted(len(b.run)) {
		over = private
	}
	if b.echoes || b.scripts && slices.ContainsFunc(b.cmds, f.Echoes) {
		over = alone
	}
	if b.scripts {
		f.forwardScripts(b, over)
		return
	}
	f.path.forward(b, over)
}

// way is over which connections a run is sent.
type way uint8

const (
	shared  way = iota
	private     // over the client's own, or over shared ones if the budget allows no further connection
	alone       // over the client's own, or not at all
)

// Place is where something is asked; the zero Place is any node.
type Place struct {
	kind placeKind
	slot int
	node *cluster.Node
	cmd  *commandtable.Command
}

type placeKind uint8

const (
	anywhere placeKind = iota
	atSlot
	atNode
	apart
	queued
)

// AtSlot is the node that has a slot.
func AtSlot(slot int) Place { return Place{kind: atSlot, slot: slot} }

// AtNode is that node; nil: any.
func AtNode(n *cluster.Node) Place {
	if n == nil {
		return Place{}
	}
	return Place{kind: atNode, node: n}
}

// Apart is all nodes that c concerns, on connections where it need not wait for others.
func Apart(c *commandtable.Command) Place { return Place{kind: apart, cmd: c} }

// Queued is the node that has the key, where the command is queued in a transaction that does not run: what Redis has against it is asked.
func Queued() Place { return Place{kind: queued} }

// Ask sends a command that changes nothing, as the client, and returns Redis' reply as it came. After a lost reply the error is a
// *upstream.NotSentError, as if nothing had been asked, except at Apart.
func (f *Forwarder) Ask(words [][]byte, at Place) ([]byte, error) { return f.path.ask(words, at) }

func (f *Forwarder) askQueued(n *upstream.Node, words [][]byte) ([]byte, error) {
	texts := make([]string, len(words))
	for i, word := range words {
		texts[i] = string(word)
	}
	return n.AskQueued(f.clientContext(), f.host.Identity(), texts...)
}

// AskAll is Ask at all nodes that have keys of their own. It returns at least one reply. Nodes that cannot answer are left out.
func (f *Forwarder) AskAll(words [][]byte) ([]resp.Reply, error) { return f.path.askAll(words) }

// Instead returns what answers c in place of one node; nil: a node answers it, as most commands.
func (f *Forwarder) Instead(c *commandtable.Command) func(words [][]byte) ([]byte, error) {
	return f.path.instead(c)
}

// Hello sends HELLO as id and returns the answer. If Redis accepts, id becomes the client's identity; else nothing changes.
func (f *Forwarder) Hello(id upstream.Identity) (resp.Reply, error) { return f.path.hello(id) }

// SelectDB makes id, which differs in its database, the client's identity, and returns the reply to SELECT. That database may be any
// number; with an error nothing changes.
func (f *Forwarder) SelectDB(id upstream.Identity) ([]byte, error) { return f.path.selectDB(id) }

// Show opens a shared connection as the client's user, if there can be one.
func (f *Forwarder) Show(ctx context.Context) { f.path.show(ctx) }

// Leave gives all connections back.
func (f *Forwarder) Leave() {
	f.big.leave()
	f.path.leave(false)
}

// EndWait ends the wait for replies to what was sent at that step, and says whether there was such a wait. Any goroutine may call it.
func (f *Forwarder) EndWait(step uint64, cause error) (ended bool) {
	r := f.request.Load()
	return r != nil && r.End(step, cause)
}

// Quiet returns for how long Redis has sent nothing in the middle of a reply that is passed on as it comes: see upstream.Request. Any
// goroutine may call it.
func (f *Forwarder) Quiet() time.Duration {
	if r := f.request.Load(); r != nil {
		return r.Quiet()
	}
	return math.MaxInt64
}

// Rest lets go of the last run.
func (f *Forwarder) Rest() {
	if r := f.request.Load(); r != nil {
		r.Cmds, r.Sink = nil, nil
	}
}

// runRequest is the request that sends the run, with its replies to sink.
func (f *Forwarder) runRequest(b *Batch, sink upstream.Sink) *upstream.Request {
	r := f.request.Load()
	if r == nil {
		r = &upstream.Request{}
		f.request.Store(r)
	}
	r.Cmds, r.Sink, r.Patient, r.Turn = b.run, sink, true, f.host.Step()
	r.Replied, r.Partial, r.Longest, r.At = 0, 0, 0, 0
	return r
}

// spent notes how long a request took.
func (f *Forwarder) spent(r *upstream.Request, err error) {
	if err == nil {
		f.Spent += r.Answered - r.Sent
	}
}

// disconnected lets go of a request that was ended: its replies are still pending.
func (f *Forwarder) disconnected(err error) {
	if upstream.Ended(err) {
		f.request.Store(nil)
	}
}

// AskKeys is Ask for several commands that are sent together, each to the node that has the key behind its name. It returns their replies in their
// order.
func (f *Forwarder) AskKeys(all [][][]byte) (replies [][]byte, err error) { return f.path.askKeys(all) }

// question asks something on a pipe, or several things at once. What is asked, and the answer, count for the client as its replies
// do. The wait for it ends as that for a run does, and after QuestionTime.
func (f *Forwarder) question(p *upstream.Pipe, raw ...[]byte) ([]byte, error) {
	g := &counted{host: f.host}
	for _, one := range raw {
		g.beside += len(one)
	}
	r := &upstream.Request{Cmds: raw, Sink: g, Patient: true, Turn: f.host.Step()}
	f.request.Store(r)
	_, err := p.Ask(r, QuestionTime)
	f.request.Store(nil)
	if g.refused {
		return nil, cluster.ErrTooMuch
	}
	return f.answered(g.got, err)
}

// counted is a Sink that keeps what its client may hold.
type counted struct {
	host    Host
	beside  int // bytes that are held besides
	got     []byte
	refused bool
}

func (g *counted) Reply(p []byte) {
	if g.refused = g.refused || !g.host.MayHold(g.beside+len(g.got)+len(p)); g.refused {
		g.got = nil
		return
	}
	g.got = append(g.got, p...)
}

// answered returns the reply to a question. If there is none, the host gets the error, too.
func (f *Forwarder) answered(reply []byte, err error) ([]byte, error) {
	if err != nil {
		err = unanswered(err)
		f.host.Trouble(err)
		return nil, err
	}
	return reply, nil
}

// clientContext is the context that ends when the client has gone.
func (f *Forwarder) clientContext() context.Context { return f.guard.Context(f.Context) }
