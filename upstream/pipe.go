package upstream

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
)

// patience is how long a request that was surely not sent may wait for the
// next connection.
const patience = time.Second

// phase is where a pipe stands with its connection.
type phase int

const (
	connecting phase = iota // an attempt is under way
	up                      // there is a link
	backingOff              // the last attempt failed, the next waits for the back-off
	resting                 // Redis refused the identity: the next attempt is made when someone asks
	ended                   // closed for good
)

// pipeKind is whose requests a connection carries.
type pipeKind uint8

const (
	sharedPipe    pipeKind = iota // many sessions'
	privatePipe                   // one session's at a time
	asidePipe                     // one question of the proxy's own
	dedicatedConn                 // no pipe: see Dedicated
)

// Pipe is a connection to Redis that is made again when it breaks.
type Pipe struct {
	// Static after construction.
	node   *Node
	id     Identity
	kind   pipeKind
	ctx    context.Context // ends when the pipe is closed
	stop   context.CancelFunc
	demand chan struct{} // one slot: someone needs the pipe that rests, or backs off

	link atomic.Pointer[link] // the current one; nil when there is none

	mu sync.Mutex // guards standing
	standing

	// Guarded by node.mu.
	users   int
	booking // its timer is a private pipe's
}

// standing is the state of a pipe's connection.
type standing struct {
	phase     phase
	connected bool          // has been up
	attempt   int           // number of the current or last attempt to connect
	cause     error         // why that failed, or why the last link ended
	changed   chan struct{} // closed at the next change of these
}

func newPipe(n *Node, id Identity, kind pipeKind, counted *share) *Pipe {
	p := &Pipe{node: n, id: id, kind: kind, booking: booking{share: counted}, demand: make(chan struct{}, 1), users: 1}
	p.standing = standing{changed: make(chan struct{}), attempt: 1}
	p.ctx, p.stop = context.WithCancel(n.ctx)
	if kind == privatePipe {
		p.unused = time.AfterFunc(idleFor, func() { n.dropUnused(p) })
	}
	return p
}

// Do sends r.Cmds and returns when the outcome of all of them is known:
//   - nil: all replies were handed to r.Sink;
//   - *NotSentError: Redis cannot have seen any of it;
//   - *LostError: the first r.Replied replies were handed over, of the other
//     commands nothing is known;
//   - *ReplyError: nothing was sent, Redis refuses the pipe's identity.
//
// A request that a breaking connection surely did not take is sent over the
// next one, if that comes up within a second. A Patient request waits as long
// if it finds a connection lost less than a second ago. There is no time-out
// for replies: see Request.End.
func (p *Pipe) Do(r *Request) error {
	if len(r.Cmds) == 0 {
		return nil
	}
	r.prepare()
	l := p.link.Load()
	if l == nil {
		return p.redo(r, false)
	}
	return p.done(r, l.do(r))
}

// done returns how the Do of r ends whose first try has ended with err.
func (p *Pipe) done(r *Request, err error) error {
	if err == nil || (Attempt{Err: err, Left: patience}).Outcome() != SendAgain {
		return err
	}
	return p.redo(r, true)
}

// Join begins a Do that Wait must end, if r is sent without the caller: another session writes for all at the moment.
// Otherwise it does nothing and returns false. So one goroutine can wait for several pipes. A caller that may be waiting
// for another pipe is never made the writer: everybody else on this one would wait for that, too.
func (p *Pipe) Join(r *Request) bool {
	l := p.link.Load()
	if l == nil || len(r.Cmds) == 0 {
		return false
	}
	r.prepare()
	return l.joinRequest(r)
}

// Wait ends what Join has begun, as Do ends.
func (p *Pipe) Wait(r *Request) error { return p.done(r, r.on.Load().awaitReply(r)) }

// Ask is Do for a question of the proxy's own, and returns the replies, one behind the other, unless r has a Sink for
// them. It is given up, with ErrTimeout, when it has no answer within that time.
func (p *Pipe) Ask(r *Request, within time.Duration) ([]byte, error) {
	var got Gathered
	if r.Sink == nil {
		r.Sink = &got
	}
	defer time.AfterFunc(within, func() { r.End(r.Turn, ErrTimeout) }).Stop()
	err := p.Do(r)
	return got, err
}

// dropLink ends the connection in use. The outcome of requests under way there is unknown; later requests get a new
// connection.
func (p *Pipe) dropLink(cause error) {
	if l := p.link.Load(); l != nil {
		l.fail(cause)
	}
}

// redo waits for a connection and sends r over it. moved says that r was queued
// on a connection that broke: then it waits while the pipe backs off, too.
func (p *Pipe) redo(r *Request, moved bool) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errNoLink)
	defer cancel()
	for {
		l, err := p.awaitLink(ctx, moved || r.Patient && p.node.contact.lately(), false)
		if err != nil {
			return err
		}
		err = l.do(r)
		if (Attempt{Err: err, Left: timeLeft(ctx)}).Outcome() != SendAgain {
			return err
		}
		moved = true
	}
}

// awaitLink returns the link in use, waiting for it while an attempt is under way.
// While the back-off runs it fails at once with the last attempt's error, with
// two exceptions: with moved it waits for a Redis that cannot be reached, and
// with fresh for the next answer of a Redis that has refused.
func (p *Pipe) awaitLink(ctx context.Context, moved, fresh bool) (*link, error) {
	now := p.state()
	newest := now.newest(fresh)
	for {
		if l := p.live(); l != nil {
			return l, nil
		}
		wakes, err := now.meets(moved, newest)
		if wakes {
			retry.Wake(p.demand)
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-now.changed:
		case <-ctx.Done():
			return nil, &NotSentError{Cause: p.state().overdue(context.Cause(ctx))}
		}
		now = p.state()
	}
}

// newest is the number of the first attempt whose refusal answers a request that finds the pipe so.
func (s standing) newest(fresh bool) int {
	if s.phase == resting || fresh && s.phase == backingOff {
		return s.attempt + 1
	}
	return s.attempt
}

// meets decides what a request does that finds the pipe so: it waits for a change, or ends with an error. wakes: the
// next attempt need not wait for the end of the back-off.
func (s standing) meets(moved bool, newest int) (wakes bool, end error) {
	waits := moved
	switch s.phase {
	case ended:
		return false, &NotSentError{Cause: ErrClosed}
	case connecting, up: // up without a link: that has just ended
		return false, nil
	}
	if Refused(s.cause) != nil {
		waits = s.attempt < newest
	}
	if waits {
		return true, nil
	}
	return s.phase == backingOff, notSent(s.cause)
}

// overdue returns why a wait for the link ended: why there was no connection, if that is known.
func (s standing) overdue(cause error) error {
	if cause == errNoLink {
		return cmp.Or(s.cause, cause)
	}
	return cause
}

// state is the standing at present.
func (p *Pipe) state() standing {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.standing
}

// fits says that the pipe is connected, and is id's of that kind.
func (p *Pipe) fits(id Identity, kind pipeKind) bool {
	return p.id == id && p.kind == kind && p.Connected()
}

// live returns the connection, as far as is known; nil: there is none.
func (p *Pipe) live() *link {
	if l := p.link.Load(); l != nil && !l.dead.Load() {
		return l
	}
	return nil
}

// Connected says whether the pipe has a connection, as far as is known: without
// one, Do may wait for it, or fail.
func (p *Pipe) Connected() bool { return p.live() != nil }

// end ends the pipe for good. The pipe's goroutine is then about to end.
func (p *Pipe) end() {
	p.stop()
	p.dropLink(ErrClosed)
}

// Release gives the pipe back, once for every Open, Private or Aside; the
// caller must not use it afterwards. Without users it is kept connected for the
// next one, unless it was Aside or too many are; a private one for idleFor.
func (p *Pipe) Release() { p.node.release(p) }
