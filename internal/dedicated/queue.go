package dedicated

import (
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
)

// When so many replies are pending, no more is read from the client until half of them have come. Behind a command that
// waits, which may be for ever, fewer replies may be pending.
const (
	mostPending = 1 << 14
	// MostPendingBlocked is how many replies may be pending behind a command that waits.
	MostPendingBlocked = 1 << 10
)

// pendingBytes is about how much is kept for a pending reply. It counts for --max-reply-memory.
const pendingBytes = 256

// Reply is the reply that a command has yet to get. It belongs to the connection from when the command is sent until it
// is answered.
type Reply struct {
	Cmd    *commandtable.Command // nil: of this proxy's own
	Kind   commandtable.ConnKind
	Args   int      // of a subscription: channels named
	Names  []string // those that are not confirmed yet, on a connection for subscriptions
	Effect Effect
	Wait   Wait
	Within time.Duration // for the reply, in place of --upstream-timeout; 0: that

	// What becomes of Redis' reply, if the client does not get it.
	Own     bool    // asked by this proxy, not by the client: it is not wanted
	Instead string  // this error is given instead
	Got     *[]byte // it goes here
	Refusal *[]byte // it goes here if it is an error
	InMulti bool    // it is of a transaction before a cluster: a redirect becomes an error that no client follows
	Fenced  bool    // it is EXEC's of a FENCED: if that runs anything the client gets the last reply within, else Got

	Ran  bool  // FENCED's EXEC has run the command: Got is nil, and the reply is the client's
	Lost error // the connection ended first

	quiet bool          // CLIENT REPLY: no reply is wanted
	sent  time.Duration // by telemetry.Clock; 0: how long it takes does not count
}

// Wait describes a command that may wait in Redis.
type Wait struct {
	Blocks bool
	For    time.Duration // 0: for ever
}

// bytes is how much is kept for it, about.
func (e *Reply) bytes() int {
	n := pendingBytes
	if e.Effect != nil {
		n += e.Effect.bytes()
	}
	return n
}

// forClient says that the client waits for it.
func (e *Reply) forClient() bool { return e.Got == nil && !e.Own }

// waits says that its command may wait. Within a transaction none does.
func (e *Reply) waits(multi bool) bool { return e.Wait.Blocks && !multi }

// closesClient says that a client without locks is closed if it is lost.
func (e *Reply) closesClient() bool { return e.Kind.CannotFail() || e.forClient() }

// changes says that the client's command may have changed something.
func (e *Reply) changes() bool {
	if e.Own {
		return false
	}
	return e.Cmd == nil || !e.Cmd.ReadOnly
}

// changesRights says that its command may change users' rights: so may what EXEC runs.
func (e *Reply) changesRights() bool {
	return e.Kind == commandtable.ConnExec || e.Cmd != nil && e.Cmd.Rights
}

// patience is how long Redis may say nothing before it: at least limit, unless it has a time of its own.
func (e *Reply) patience(limit time.Duration, multi bool) time.Duration {
	switch {
	case e.Within > 0:
		return e.Within
	case !e.waits(multi):
		return limit
	case e.Wait.For == 0:
		return forEver
	}
	return limit + e.Wait.For
}

// queue has the replies that have not come, oldest first.
type queue struct {
	all   []*Reply
	bytes int           // kept for them
	waits int           // how many of them are to commands that may wait
	last  time.Duration // when the last one came, by telemetry.Clock
}

// add notes that the reply to e is pending.
func (q *queue) add(e *Reply) {
	q.all = append(q.all, e)
	q.bytes += e.bytes()
	if e.Wait.Blocks {
		q.waits++
	}
}

// oldest returns the command whose reply comes next, or nil.
func (q *queue) oldest() *Reply {
	if len(q.all) == 0 {
		return nil
	}
	return q.all[0]
}

// pop takes the oldest off: it is answered now. took is the time since it was sent, or since the reply before it if
// that came later.
func (q *queue) pop(now time.Duration) (took time.Duration) {
	e := q.all[0]
	if e.Wait.Blocks {
		q.waits--
	}
	q.bytes -= e.bytes()
	q.all[0] = nil
	if q.all = q.all[1:]; len(q.all) == 0 {
		q.all = nil
	}
	took = now - max(e.sent, q.last)
	q.last = now
	return took
}

// clear takes all off: the connection is over.
func (q *queue) clear() { *q = queue{} }

// any says whether is holds for one of them.
func (q *queue) any(is func(*Reply) bool) bool { return slices.ContainsFunc(q.all, is) }

// most is how many may be pending.
func (q *queue) most() int {
	if q.waits > 0 {
		return MostPendingBlocked
	}
	return mostPending
}
