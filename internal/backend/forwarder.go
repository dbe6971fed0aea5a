package backend

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Common is what the Forwarders of a process share.
type Common struct {
	*client.Process
	Service upstream.Identity      // who asks the proxy's own questions
	Routes  atomic.Pointer[Routes] // of the present command table

	// OneLine says that Redis, when it was last asked, wrote the errors of scripts in one line each, whatever a script
	// put into them. Redis 8.2.3 does not: there an error looks like as many replies as its script likes.
	OneLine atomic.Bool

	// Limited says that Redis closes connections that hold many bytes of replies. Then clients do not share one: the
	// reply of one client would close it for all others.
	Limited atomic.Bool

	// RightsChanged is called when Redis has answered commands that may have changed users' rights, before their client
	// has the replies. It does not block.
	RightsChanged func(RightsChange)
	// Deleted asks Redis whether it takes an identity still. If not, it closes that one's clients.
	Deleted func(upstream.Identity) bool

	replies longReplies
}

// Echoes says that an error of c may look like several replies: then what is on the same connection must be this
// client's.
func (c *Common) Echoes(cmd *commandtable.Command) bool {
	return cmd.Echoes || cmd.Script && !c.OneLine.Load()
}

// AsService is who the proxy's own questions are asked as.
func (c *Common) AsService() upstream.Identity {
	id := c.Service
	id.DB, id.Proto = 0, 2
	return id
}

// Forwarder is how one client's commands reach Redis on connections that it shares with others. Its client's goroutine
// alone uses it, but for EndWait and Quiet.
type Forwarder struct {
	*Common
	path
	client  *client.Client
	batch   *Batch                           // of the commands at work; nil: none are
	request atomic.Pointer[upstream.Request] // the request that sends its runs, or asks; nil: none yet
	long    longTraffic
	spent   time.Duration // how long all forwarded commands took, from sending to the replies
}

// path is what differs between one Redis and the nodes of a cluster.
type path interface {
	// Ask sends a command that changes nothing, as the client, and returns Redis' reply as it came. After a lost reply the
	// error is a *upstream.NotSentError, as if nothing had been asked, except at Apart.
	Ask(words [][]byte, at Destination) ([]byte, error)
	// AskAll is Ask at all nodes that have keys of their own. It returns at least one reply. Nodes that cannot answer are
	// left out.
	AskAll(words [][]byte) ([]resp.Reply, error)
	// AskKeys is Ask for several commands that are sent together, each to the node that has the key behind its name. It
	// returns their replies in their order.
	AskKeys(all [][][]byte) (replies [][]byte, err error)
	// Hello sends HELLO as id and returns the answer. If Redis accepts, id becomes the client's identity; else nothing
	// changes.
	Hello(id upstream.Identity) (resp.Reply, error)
	// SelectDB makes id, which differs in its database, the client's identity, and returns the reply to SELECT. That
	// database may be any number; with an error nothing changes.
	SelectDB(id upstream.Identity) ([]byte, error)
	// Show opens a shared connection as the client's user, if there can be one.
	Show(ctx context.Context)
	// Leave gives all connections back.
	Leave()

	// forward sends the run, and gathers its replies.
	forward(b *Batch, over way)
}

// NewForwarder returns the Forwarder to b of client c.
func NewForwarder(b Backend, common *Common, c *client.Client) *Forwarder {
	f := &Forwarder{Common: common, client: c}
	f.path = b.path(f)
	return f
}

// Begin has b be the Batch of the commands that are at work from now on.
func (f *Forwarder) Begin(b *Batch) {
	f.batch = b
	b.To = f.client.Conn
	f.client.Out = &b.Output
	b.Timing.begin()
}

// Rest says that no commands are at work: nothing is left to be sent.
func (f *Forwarder) Rest() {
	f.batch, f.client.Out = nil, nil
	if r := f.request.Load(); r != nil {
		r.Cmds, r.Sink = nil, nil
	}
}

// Add adds a command to the run, which is sent when it is long enough, or when Send is called.
func (f *Forwarder) Add(raw []byte, words [][]byte, c *commandtable.Command) {
	long := f.isLong(raw, words, c)
	if long { // by itself its reply is passed on as it comes, also before a cluster
		f.Send()
	}
	f.batch.add(raw, words, c, f.wayOf(c))
	f.batch.long = long
	if long || len(f.batch.run) >= f.long.runLength() || f.batch.size >= runBytes {
		f.Send()
	}
}

// Send sends the run, if commands are at work, waits for its replies, and answers for Redis where Redis did not.
func (f *Forwarder) Send() {
	b := f.batch
	if b == nil || len(b.run) == 0 {
		return
	}
	if !f.client.End.Over() {
		telemetry.Commands.Add(int64(len(b.run)))
		f.client.Step.Next()
		f.spent = 0
		if f.long.wanted(len(b.run)) || b.long || f.Limited.Load() {
			b.over = max(b.over, private)
		}
		f.path.forward(b, b.over)
		b.Timing.forwarded(f.spent)
	}
	if b.rights.Any {
		f.RightsChanged(b.rights)
	}
	b.clearRun()
	if b.Full() {
		f.client.Flush()
	}
}

// way is over which connections a run is sent. All of a run goes the same way, and the next one when it is answered: so
// a client's commands keep their order. The last way that one of a run's commands needs does for all of them.
type way uint8

const (
	shared  way = iota // those that an identity's clients share
	writes             // those that they share for writes, which Redis may pause
	beside             // those that they share for scripts, which Redis may run for long
	private            // ones that nobody else uses until the replies are there
	alone              // such ones for scripts; or none: for the others shared ones do if there can be no further
	ways
)

// wayOf is the way that a command needs by itself.
func (f *Forwarder) wayOf(c *commandtable.Command) way {
	switch {
	case f.Echoes(c):
		return alone
	case c.Thread:
		return private
	case c.Script:
		return beside
	case c.Writes:
		return writes
	}
	return shared
}

// owned says that nobody else uses the connections until the replies are there.
func (w way) owned() bool { return w >= private }

// optional says that shared connections do as well.
func (w way) optional() bool { return w != shared && w != alone }

// as is the identity of the connections.
func (w way) as(id upstream.Identity) upstream.Identity {
	switch w {
	case writes:
		id.For = upstream.Writes
	case beside, alone:
		id.For = upstream.Scripts
	}
	return id
}

// Destination is where something is asked; the zero Destination is any node.
type Destination struct {
	kind destinationKind
	slot int
	node *cluster.Node
	cmd  *commandtable.Command
}

type destinationKind uint8

const (
	anywhere destinationKind = iota
	atSlot
	atNode
	apart
	queued
	scanning
	asWhole
)

// AtSlot is the node that has a slot.
func AtSlot(slot int) Destination { return Destination{kind: atSlot, slot: slot} }

// AtNode is that node; nil: any.
func AtNode(n *cluster.Node) Destination {
	if n == nil {
		return Destination{}
	}
	return Destination{kind: atNode, node: n}
}

// Apart is all nodes that c concerns, on connections where it need not wait for others.
func Apart(c *commandtable.Command) Destination { return Destination{kind: apart, cmd: c} }

// AsWhole is a cluster, which answers c as its row says, in place of one node.
func AsWhole(c *commandtable.Command) Destination { return Destination{kind: asWhole, cmd: c} }

// Queued is the node that has the key, where the command is queued in a transaction that does not run: what Redis has
// against it is asked.
func Queued() Destination { return Destination{kind: queued} }

func (f *Forwarder) askQueued(n *upstream.Node, words [][]byte) ([]byte, error) {
	texts := make([]string, len(words))
	for i, word := range words {
		texts[i] = string(word)
	}
	return n.AskQueued(f.client.Context(), f.client.Identity(), texts...)
}

// EndWait ends the wait for replies to what was sent at that step, and says whether there was such a wait. Any
// goroutine may call it.
func (f *Forwarder) EndWait(step uint64, cause error) (ended bool) {
	r := f.request.Load()
	return r != nil && r.End(step, cause)
}

// Quiet returns for how long Redis has sent nothing in the middle of a reply that is passed on as it comes: see
// upstream.Request. Any goroutine may call it.
func (f *Forwarder) Quiet() time.Duration {
	if r := f.request.Load(); r != nil {
		return r.Quiet()
	}
	return math.MaxInt64
}

// runRequest is the request that sends the run, with its replies to sink.
func (f *Forwarder) runRequest(b *Batch, sink upstream.Sink) *upstream.Request {
	r := f.request.Load()
	if r == nil {
		r = &upstream.Request{}
		f.request.Store(r)
	}
	r.Cmds, r.Sink, r.Patient, r.Turn = b.run, sink, true, f.client.Step.Next()
	r.Replied, r.Partial, r.Longest, r.At = 0, 0, 0, 0
	return r
}

// took notes how long a request took.
func (f *Forwarder) took(r *upstream.Request, err error) {
	if err == nil {
		f.spent += r.Answered - r.Sent
	}
}

// disconnected lets go of a request that was ended: its replies are still pending.
func (f *Forwarder) disconnected(err error) {
	if upstream.Ended(err) {
		f.request.Store(nil)
	}
}

// question asks something on a pipe, or several things at once. What is asked, and the answer, count for the client as
// its replies do. The wait for it ends as that for a run does, and after QuestionTime.
func (f *Forwarder) question(p *upstream.Pipe, raw ...[]byte) ([]byte, error) {
	g := &counted{holder: f.client}
	for _, one := range raw {
		g.beside += len(one)
	}
	r := &upstream.Request{Cmds: raw, Sink: g, Patient: true, Turn: f.client.Step.Next()}
	f.request.Store(r)
	_, err := p.Ask(r, QuestionTime)
	f.request.Store(nil)
	if g.err() != nil {
		return nil, g.err()
	}
	return f.answered(g.got, err)
}

// counted is a Sink that keeps what its holder may hold.
type counted struct {
	holder  cluster.Holder
	beside  int // bytes that are held besides
	got     []byte
	refused bool
}

func (g *counted) Reply(p []byte) {
	if g.refused = g.refused || !g.holder.MayHold(g.beside+len(g.got)+len(p)); g.refused {
		g.got = nil
		return
	}
	g.got = append(g.got, p...)
}

// err says that there was more.
func (g *counted) err() error {
	if g.refused {
		return cluster.ErrTooMuch
	}
	return nil
}

// answered returns the reply to a question.
func (f *Forwarder) answered(reply []byte, err error) ([]byte, error) {
	if err != nil {
		err = notAsked(err)
		f.Trouble(err)
		return nil, err
	}
	return reply, nil
}

// notAsked returns err for a question that changes nothing: if its reply was lost it is as if nothing had been asked.
func notAsked(err error) error {
	if lost, is := errors.AsType[*upstream.LostError](err); is {
		return &upstream.NotSentError{Cause: lost.Cause}
	}
	return err
}

// Trouble is called with the error of something that Redis was asked: unless that is Redis' answer, or a bound of this
// proxy's, another Redis may have taken the place of the one that was asked.
func (c *Common) Trouble(err error) {
	if !client.TooMany(err) && upstream.Refused(err) == nil {
		c.LearnAgain()
	}
}

// SetIdentity makes id, which Redis has accepted, the client's identity, and gives back the connections of the one before.
func (f *Forwarder) SetIdentity(id upstream.Identity) {
	if id != f.client.Identity() {
		f.Leave()
		f.client.SetIdentity(id)
	}
}

// fail answers commands of b to which Redis has sent no reply. When the outcome of one that may have written is
// unknown, the client's locks are left to expire.
func (f *Forwarder) fail(b *Batch, err error, cmds []*commandtable.Command) {
	// the client has gone: nobody reads what is answered, and the rest of what it sent follows
	if errors.Is(err, upstream.ErrLeft) && b.copied() {
		return
	}
	if f.Trouble(err); client.PasswordRefused(err) && f.client.End.Over() {
		return // closed without an error reply
	}
	if f.wasDeleted(err) {
		return // likewise, as Redis closes those whose user is deleted, whatever they have sent since
	}
	for range cmds {
		if f.client.Fail(err); f.client.End.Over() {
			break
		}
	}
	if !upstream.IsLost(err) {
		return
	}
	if errors.Is(err, upstream.ErrTimeout) && !b.copied() {
		// Its bytes may still be sent from the buffer into which the client's next ones would be read.
		f.client.End.HangUp(downstream.Left, "a long command has had no answer in time")
	}
	if slices.ContainsFunc(cmds, func(c *commandtable.Command) bool { return !c.ReadOnly }) {
		f.client.LeaveToExpire()
	}
}

// wasDeleted says whether a connection was lost because the client's user has been deleted, and closes the client then.
// Redis is asked only for clients that hold locks: others are closed anyway when a connection is lost.
func (f *Forwarder) wasDeleted(err error) bool {
	id := f.client.Identity()
	return id.User != "" && upstream.IsLost(err) && f.client.Held() > 0 && f.Deleted(id)
}
