package dedicated

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// When so many replies are pending, no more is read from the client until half of them have come. Behind a command that
// waits, which may be for ever, fewer replies may be pending.
const (
	mostPending = 1 << 14
	// MostPendingBlocked is how many replies may be pending behind a command that waits.
	MostPendingBlocked = 1 << 10
)

// About how many bytes are kept for a pending reply, and for a queued command that does something to the connection.
// Both count for --max-reply-memory.
const (
	pendingBytes = 352 // and what is kept of the call
	effectBytes  = 512 // and its words
)

// callBytes is how much of a command is kept to tell which one took long.
const callBytes = 256

// Reply is the reply that a command has yet to get. It belongs to the connection from when the command is sent until it is answered.
type Reply struct {
	Cmd     *commandtable.Command // nil: of this proxy's own
	Kind    commandtable.ConnKind
	Args    int      // of a subscription: channels named
	Names   []string // those that are not confirmed yet, on a connection for subscriptions
	Effect  Effect
	Own     bool // asked by this proxy, not by the client: its reply is not wanted
	Wait    Wait
	Instead string  // this error is given instead of Redis' reply
	Got     *[]byte // the reply goes here
	Refusal *[]byte // it goes here if it is an error
	Queues  bool    // a redirect is answered QUEUED: the transaction is begun anew at EXEC
	Exec    Exec
	Lost    error // the connection ended first

	subs confirmations
	call call
}

// bytes is how much is kept for it, about.
func (e *Reply) bytes() int { return pendingBytes + len(e.call.begins) + e.Effect.bytes() }

// call is the client's command.
type call struct {
	quiet  bool          // CLIENT REPLY: no reply is wanted
	begins string        // its first bytes; "": nobody is told how long it takes
	sent   time.Duration // by telemetry.Clock
}

// confirmations are those of a subscription.
type confirmations struct {
	begun bool
	left  int // still to come, once begun
}

// Wait describes a command that may wait in Redis.
type Wait struct {
	Blocks bool
	For    time.Duration // 0: for ever
	Shuts  bool          // SHUTDOWN: Redis makes writes wait meanwhile
}

// Exec describes the EXEC that FENCED sends.
type Exec struct {
	Head string // how its reply begins if the command was run; "": it is no such EXEC
	Ran  bool   // the command was run: Got is nil, and what follows the head is the client's
}

// pending are the replies that have not come, oldest first. The connection's lock is held in all of this.
type pending struct {
	all   []*Reply
	bytes int // kept for them
	waits int // how many of them are to commands that may wait

	answered time.Duration // by telemetry.Clock, when the last one came
	kept     downstream.Account
	writes   *client.Writes
}

// add notes that the reply to e is pending.
func (q *pending) add(e *Reply) {
	q.all = append(q.all, e)
	q.bytes += e.bytes()
	if e.Wait.Blocks {
		q.waits++
	}
	if e.Wait.Shuts {
		q.writes.Shutting(1)
	}
}

// pop takes the oldest off the list.
func (q *pending) pop() {
	if q.all[0].Wait.Blocks {
		q.waits--
	}
	if q.all[0].Wait.Shuts {
		q.writes.Shutting(-1)
	}
	q.bytes -= q.all[0].bytes()
	q.all[0] = nil
	if q.all = q.all[1:]; len(q.all) == 0 {
		q.all = nil
	}
}

// clear forgets the list: the connection is over.
func (q *pending) clear() {
	for _, e := range q.all {
		if e.Wait.Shuts {
			q.writes.Shutting(-1)
		}
	}
	q.all, q.bytes, q.waits = nil, 0, 0
}

// blocked says that a command which may wait is under way.
func (q *pending) blocked() bool { return q.waits > 0 }

// confirmed takes one of the confirmations of e, the oldest.
func (p *Conn) confirmed(e *Reply) {
	if e.subs.left--; e.subs.left == 0 {
		p.popPending()
	}
}

// addPending notes that the reply to e is pending.
func (p *Conn) addPending(e *Reply) {
	p.pending.add(e)
	p.count()
	p.watchTimeout()
}

// popPending takes the oldest command off the list: it is answered.
func (p *Conn) popPending() {
	p.timed(p.pending.all[0])
	p.pending.pop()
	p.count()
}

// timed reports how long a command of the client's took: from when it was sent, or from the reply before it if that came later. A command
// that may wait is not reported, because nobody knows whether it did.
func (p *Conn) timed(e *Reply) {
	now := telemetry.Clock()
	if e.call.begins != "" && (!e.Wait.Blocks || p.state.multi) {
		p.Client.Timed(e.Cmd, e.call.begins, now-max(e.call.sent, p.pending.answered))
	}
	p.pending.answered = now
}

// count tells the budget how many bytes are kept, what has come of a frame and cannot be passed on yet included. leave gives them back.
func (p *Conn) count() {
	if p.life.released {
		return
	}
	come := beyond(p.frame.head) + beyond(p.out.bytes)
	if p.state.exec != nil {
		come += beyond(p.state.exec.start)
	}
	p.pending.kept.Set(p.pending.bytes + p.state.inside.bytes + p.state.kept.bytes + come)
}

// beyond is how much a buffer takes if that is more than each connection may keep.
func beyond(b []byte) int {
	if cap(b) <= keepBytes {
		return 0
	}
	return cap(b)
}

// oldest returns the command whose reply comes next, or nil.
func (p *Conn) oldest() *Reply {
	if len(p.pending.all) == 0 || p.state.stray {
		return nil
	}
	return p.pending.all[0]
}
