package upstream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
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

// Pipe is a connection to Redis that is made again when it breaks. A shared
// one carries the requests of many sessions, a private one those of one.
type Pipe struct {
	// Static after construction.
	node    *Node
	id      Identity
	private bool
	share   *share          // of the node's budget
	ctx     context.Context // ends when the pipe is closed
	stop    context.CancelFunc
	demand  chan struct{} // one slot: someone needs the pipe that rests, or backs off

	link atomic.Pointer[link] // the current one; nil when there is none

	mu sync.Mutex // guards standing
	standing

	// Guarded by node.mu.
	users int
}

// standing is the state of a pipe's connection.
type standing struct {
	phase     phase
	connected bool          // has been up
	attempt   int           // number of the current or last attempt to connect
	cause     error         // why that failed, or why the last link ended
	changed   chan struct{} // closed at the next change of these
}

func newPipe(n *Node, id Identity, private bool) *Pipe {
	p := &Pipe{node: n, id: id, private: private, demand: make(chan struct{}, 1), users: 1, standing: standing{changed: make(chan struct{}), attempt: 1}}
	p.ctx, p.stop = context.WithCancel(n.ctx)
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
	err := l.do(r)
	if _, unsent := err.(*NotSentError); unsent && !Ended(err) {
		return p.redo(r, true)
	}
	return err
}

// Ask is Do for a question of the proxy's own, and returns the replies, one behind the other, unless r has a Sink for them. It is given up,
// with ErrTimeout, when it has no answer within that time.
func (p *Pipe) Ask(r *Request, within time.Duration) ([]byte, error) {
	var got Gathered
	if r.Sink == nil {
		r.Sink = &got
	}
	defer time.AfterFunc(within, func() { r.End(r.Turn, ErrTimeout) }).Stop()
	err := p.Do(r)
	return got, err
}

// drop ends the connection in use. The outcome of requests under way there is unknown; later requests get a new connection.
func (p *Pipe) drop(cause error) {
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
		l, err := p.await(ctx, moved || r.Patient && p.node.contact.lately(), false)
		if err != nil {
			return err
		}
		err = l.do(r)
		if _, unsent := err.(*NotSentError); !unsent || Ended(err) {
			return err
		}
		moved = true
	}
}

// await returns the link in use, waiting for it while an attempt is under way.
// While the back-off runs it fails at once with the last attempt's error, with
// two exceptions: with moved it waits for a Redis that cannot be reached, and
// with fresh for the next answer of a Redis that has refused.
func (p *Pipe) await(ctx context.Context, moved, fresh bool) (*link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	need := p.attempt // a refusal counts from this attempt on
	if p.phase == resting || fresh && p.phase == backingOff {
		need++
	}
	for {
		switch p.phase {
		case up:
			if l := p.link.Load(); l != nil && !l.dead.Load() {
				return l, nil
			}
		case backingOff, resting:
			wait := moved
			if Refused(p.cause) != nil {
				wait = p.attempt < need
			}
			if p.phase == resting && wait || p.phase == backingOff {
				p.wake()
			}
			if !wait {
				return nil, notSent(p.cause)
			}
		case ended:
			return nil, &NotSentError{Cause: ErrClosed}
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
			p.mu.Lock()
		case <-ctx.Done():
			p.mu.Lock()
			return nil, &NotSentError{Cause: p.overdue(ctx)}
		}
	}
}

// overdue returns why a wait for the link ended: why there was no connection, if that is known. mu is held.
func (p *Pipe) overdue(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != errNoLink || p.cause == nil {
		return cause
	}
	return p.cause
}

// Release gives the pipe back, once for every Open or Private; the caller must
// not use it afterwards. A shared pipe without users is kept connected for a
// while, a private one is closed.
func (p *Pipe) Release() { p.node.release(p) }
