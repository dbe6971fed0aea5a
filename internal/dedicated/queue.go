package dedicated

import (
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
)

// When so many replies are pending, they are waited for.
const mostPending = 1 << 12

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

// forEver is longer than anything is waited for.
const forEver time.Duration = 1 << 60

// patience is for how long Redis may say nothing before it, beside --upstream-timeout.
func (e *Reply) patience(multi bool) time.Duration {
	switch {
	case !e.waits(multi):
		return 0
	case e.Wait.For == 0:
		return forEver
	}
	return e.Wait.For
}

// queue has the replies that have not come, oldest first.
type queue struct {
	all   []*Reply
	bytes int           // kept for them
	last  time.Duration // when the last one came, by telemetry.Clock
}

// add notes that the reply to e is pending.
func (q *queue) add(e *Reply) {
	q.all = append(q.all, e)
	q.bytes += e.bytes()
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
	q.bytes -= e.bytes()
	q.all[0] = nil
	if q.all = q.all[1:]; len(q.all) == 0 {
		q.all = nil
	}
	took = now - max(e.sent, q.last)
	q.last = now
	return took
}

// blocks says that the reply which comes next is to a command that may wait.
func (q *queue) blocks() bool {
	e := q.oldest()
	return e != nil && e.Wait.Blocks
}

// any says whether is holds for one of them.
func (q *queue) any(is func(*Reply) bool) bool { return slices.ContainsFunc(q.all, is) }
