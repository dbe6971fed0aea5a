package upstream

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// Sink takes the bytes of a request's replies, exactly as Redis sent them.
type Sink interface {
	// Reply is called from the pipe's reader goroutine, in order, with the next
	// bytes; it must not keep p. On a shared pipe they are whole frames, or
	// pieces of one longer than 32 KiB, and Reply must not block: all clients
	// of the pipe would wait. On a private pipe they come in pieces of any
	// size, and Reply may block.
	Reply(p []byte)
}

// Gathered is a Sink that keeps all it gets.
type Gathered []byte

// Reply implements Sink.
func (g *Gathered) Reply(p []byte) { *g = append(*g, p...) }

// Request is some commands of one client and where their replies go. Its owner
// may use it again as soon as Do has returned; Do allocates nothing then.
type Request struct {
	Cmds [][]byte // raw multibulk commands that get exactly one reply each
	Sink Sink
	// Patient makes Do wait for a connection that was lost less than a second ago,
	// so that a client does not notice a short absence of Redis.
	Patient bool
	Turn    uint64 // chosen by the caller, so that End ends this Do and no later one

	Handed // set by Do

	next *Request
	size int64       // bytes of Cmds
	off  int64       // where Cmds starts in the link's stream
	wake chan wakeUp // two slots: for a wakeEnd and one other
	err  error       // written before wakeDone is sent; what Do returns

	at         atomic.Int32         // who may use Sink and what Do sets
	quietSince atomic.Int64         // see Quiet
	on         atomic.Pointer[link] // the link that has it, or had it last

	ending // guarded by on's mu
}

// Handed is what Do has handed to a Request's Sink.
type Handed struct {
	Replied int  // complete replies
	Torn    bool // Do failed after Sink had got a part of the next reply,
	Partial int  // of so many bytes
	Longest int  // bytes of the longest reply that was handed over in pieces,
	At      int  // which is that to this of the commands

	// By telemetry.Clock, when Do has succeeded: before its first byte was written, and when its last reply had been
	// read.
	Sent, Answered time.Duration
}

// long notes that the reply to that command has so many bytes so far.
func (h *Handed) long(bytes, at int) {
	if bytes > h.Longest {
		h.Longest, h.At = bytes, at
	}
}

// ending is how the Do of a Request is ended before it has its replies.
type ending struct {
	turn   uint64 // of the Do under way
	ended  error  // End's cause
	left   bool   // its caller has gone: only its replies are still pending
	beside bool   // its caller has joined, and may be at another link: it writes nothing here
	within uint64 // number of the link's write in which the caller was when it was ended
}

// Who may use a request's Sink.
const (
	atRest int32 = iota
	atReader
	atNobody // the caller has left it: its replies are dropped
)

// enter says whether replies may be handed over; exit must follow.
func (r *Request) enter() bool { return r.at.CompareAndSwap(atRest, atReader) }

func (r *Request) exit() { r.at.Store(atRest) }

// End ends the Do of that turn, if it is under way: Do returns a *NotSentError or a *LostError with that cause. On a
// shared pipe the replies stay pending and are dropped as they come; on a private pipe the connection is closed. After
// a *LostError for which Ended is true the Request must not be used again. Any goroutine may call End; it never blocks.
// A session cannot leave Do while it is in a write of which Redis takes nothing: a second End, with ErrTimeout and
// during the same write, closes a shared connection, too. End says whether that Do had begun to send.
func (r *Request) End(turn uint64, cause error) (begun bool) {
	l := r.on.Load()
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.on.Load() != l || r.turn != turn {
		return false
	}
	if r.ended != nil {
		if cause == ErrTimeout && l.writer == r && r.within == l.writes {
			l.failLocked(errTakesNothing)
		}
		return true
	}
	r.ended = cause
	if l.writer == r {
		r.within = l.writes
	}
	if !l.whole {
		l.failLocked(cause)
		return true
	}
	r.wake <- wakeEnd
	l.wait.Broadcast()
	return true
}

// The values of Request.quietSince that are no time. Otherwise it is when Sink had taken all that had come, by
// telemetry.Clock.
const (
	nothingYet int64 = 0
	takingNow  int64 = -1 // Sink is taking it
)

// Quiet returns for how long Redis has sent nothing more of the replies to the last Do, of which it owes some. On a
// private pipe it is 0 while Sink takes what has come, because Redis is not what is waited for then. Before the first
// reply has come, or on a private pipe its first byte, it is math.MaxInt64. Any goroutine may call it.
func (r *Request) Quiet() time.Duration {
	switch at := r.quietSince.Load(); at {
	case nothingYet:
		return math.MaxInt64
	case takingNow:
		return 0
	default:
		return telemetry.Clock() - time.Duration(at)
	}
}

// served says that the session of the request need not wait any more; the link's mu is held.
func (r *Request) served() bool { return len(r.wake) > 0 || r.left }

// abandon takes the request off the link that it was on before, unless that is l. An End that held that link's mu is
// over then, and later ones find no link. Two links are never locked at once.
func (r *Request) abandon(l *link) {
	if was := r.on.Load(); was != nil && was != l {
		was.mu.Lock()
		r.on.Store(nil)
		was.mu.Unlock()
	}
}

// wakeUp says why a request's session is woken in Do.
type wakeUp byte

const (
	wakeDone  wakeUp = iota // Replied and err are final
	wakeWrite               // take over the writing for the link
	wakeEnd                 // stop waiting for the request
)

// prepare resets what Do sets.
func (r *Request) prepare() {
	if r.wake == nil {
		r.wake = make(chan wakeUp, 2)
	}
	r.Handed, r.size = Handed{}, 0
	r.quietSince.Store(nothingYet)
	for _, c := range r.Cmds {
		r.size += int64(len(c))
	}
}

// chain is a FIFO of requests, linked through next.
type chain struct{ head, tail *Request }

func (c *chain) push(r *Request) {
	if c.tail == nil {
		c.head = r
	} else {
		c.tail.next = r
	}
	c.tail = r
}

func (c *chain) pop() *Request {
	r := c.head
	if c.head = r.next; c.head == nil {
		c.tail = nil
	}
	r.next = nil
	return r
}

// successor returns the oldest of pending requests whose session waits for it alone, and so can take over the writing;
// nil: there is none.
func (c *chain) successor() *Request {
	r := c.head
	for r != nil && (r.left || r.beside) {
		r = r.next
	}
	return r
}

// appendChain moves all of d behind c.
func (c *chain) appendChain(d *chain) {
	if d.head == nil {
		return
	}
	if c.tail == nil {
		c.head = d.head
	} else {
		c.tail.next = d.head
	}
	c.tail = d.tail
	*d = chain{}
}
