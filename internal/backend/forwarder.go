package backend

import (
	"context"
	"math"
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
	// Identity is the client's of now.
	Identity() upstream.Identity
	// Adopt has the client be id from now on, to which Redis has agreed. It gives back what the Forwarder has open.
	Adopt(id upstream.Identity)
	// Admitted notes that Redis lets the client run commands.
	Admitted()
	// Refused says why the client may not have a connection of its own; nil: it may.
	Refused() error
	// MustLogIn says that Redis refuses the client's commands until it has authenticated.
	MustLogIn() bool
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
	// Routes are those of the commands that are known now.
	Routes() *Routes
	// Step begins something that may make the client wait, and numbers it.
	Step() uint64
	// Unanswered answers for Redis commands that it did not.
	Unanswered(err error, commands []*commandtable.Command)
	// Trouble is told why a question to Redis failed.
	Trouble(err error)
}

// Common is what the Forwarders of a process share.
type Common struct {
	Context context.Context   // ends when the last clients are cut off
	Service upstream.Identity // who loads scripts again
	Scripts *scriptcache.Cache
	Lanes   *scriptcache.Lanes
	OwnFor  time.Duration // that a client keeps a connection for big traffic without any
}

// Forwarder is how one client's commands reach Redis on connections that it shares with others. Its client's goroutine alone uses it,
// but for EndWait and Quiet.
type Forwarder struct {
	*Common
	host    Host
	guard   *downstream.Conn
	path    path
	request atomic.Pointer[upstream.Request] // which sends its runs; nil: none yet
	big     bigTraffic
	Spent   time.Duration // from sending to the replies, of all that was forwarded; the client's own to set back
}

// path is what differs: one Redis, or the nodes of a cluster.
type path interface {
	// forward sends the run, and gathers its replies.
	forward(b *Batch, big bool)
	// forwardScripts is forward of a run that runs scripts, over a connection that no ordinary command waits for. known: all of them are
	// known to be quick. It says how long Redis took.
	forwardScripts(b *Batch, known bool) time.Duration
	// reload has scripts loaded again that Redis has lost, and what needed them sent again.
	reload(b *Batch, lost lostScripts, send func() time.Duration)
	// ask asks one node; askAll each that has keys of its own.
	ask(words [][]byte, at Place) ([]byte, error)
	askAll(words [][]byte) ([]resp.Reply, error)
	// instead is who answers c in place of one node; nil: nobody.
	instead(c *commandtable.Command) func(words [][]byte) ([]byte, error)
	hello(id upstream.Identity) (resp.Reply, error)
	selectDB(id upstream.Identity, word []byte) ([]byte, error)
	// show has a shared connection as the client's user.
	show(ctx context.Context)
	// serves says that the shared connection of a client that has not authenticated is one that Redis lets run commands.
	serves() bool
	// leave gives connections back: all, or those that big traffic alone needs.
	leave(big bool)
}

// NewForwarder is a client's way to b.
func NewForwarder(b Backend, c *Common, h Host, guard *downstream.Conn) *Forwarder {
	f := &Forwarder{Common: c, host: h, guard: guard}
	f.path = b.path(f)
	return f
}

// Forward sends the run of b, waits for its replies, and has the host answer what Redis did not.
func (f *Forwarder) Forward(b *Batch) {
	big := f.big.wanted(len(b.run))
	if b.scripts {
		f.forwardScripts(b, big)
		return
	}
	f.path.forward(b, big)
}

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
	atKey
	atSlot
	atNode
	apart
)

// AtKey is the node that has the key behind the command's name.
func AtKey() Place { return Place{kind: atKey} }

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

// Ask asks what changes nothing, as the client, and returns Redis' reply as it came. A lost reply is no unknown outcome here, but apart:
// the error then is a *upstream.NotSentError, as if nothing had been asked.
func (f *Forwarder) Ask(words [][]byte, at Place) ([]byte, error) { return f.path.ask(words, at) }

// AskAll is Ask of all nodes that have keys of their own, at least one. One that cannot answer does not hide what the others say.
func (f *Forwarder) AskAll(words [][]byte) ([]resp.Reply, error) { return f.path.askAll(words) }

// Instead is who answers c in place of one node; nil: nobody, or only the node that has a key can.
func (f *Forwarder) Instead(c *commandtable.Command) func(words [][]byte) ([]byte, error) {
	return f.path.instead(c)
}

// Hello takes id on and asks for the answer to HELLO there; if Redis does not agree nothing changes.
func (f *Forwarder) Hello(id upstream.Identity) (resp.Reply, error) { return f.path.hello(id) }

// SelectDB has the client be in id's database, which SELECT named by word, and returns the reply to that.
func (f *Forwarder) SelectDB(id upstream.Identity, word []byte) ([]byte, error) {
	return f.path.selectDB(id, word)
}

// Show has a shared connection as the client's user, if there can be one.
func (f *Forwarder) Show(ctx context.Context) { f.path.show(ctx) }

// Serves says that the shared connection of a client that has not authenticated is one that Redis lets run commands: to ask on it would
// tell nothing else, and could take for as long as a script does.
func (f *Forwarder) Serves() bool { return f.path.serves() }

// Leave gives all connections back.
func (f *Forwarder) Leave() {
	f.big.leave()
	f.path.leave(false)
}

// EndWait ends the wait for replies to what was sent at that step. Any goroutine may call it.
func (f *Forwarder) EndWait(step uint64, cause error) {
	if r := f.request.Load(); r != nil {
		r.End(step, cause)
	}
}

// Quiet is how long Redis has sent nothing in the middle of a reply that is passed on as it comes: see upstream.Request. Any goroutine may
// call it.
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
	r.Replied, r.Partial, r.Longest = 0, 0, 0
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

// question asks one thing on a pipe.
func (f *Forwarder) question(p *upstream.Pipe, raw []byte) ([]byte, error) {
	var got Gathered
	err := p.Ask(&upstream.Request{Cmds: [][]byte{raw}, Sink: &got, Patient: true}, QuestionTime)
	return f.answered(got, err)
}

// answered is the reply to a question, of which the host is told why there is none.
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
