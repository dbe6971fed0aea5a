package upstream

import (
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// maxQueued is how many requests may be under way on one link.
const maxQueued = 16384

// link is one connection to Redis that carries many requests. It is not made again when it breaks.
//
// A request goes through three places, each in the order of the byte stream:
// pending (its bytes lie in out), flight (a writer has collected it), and the
// reader's own chain. It leaves when its replies are in or when the link ends.
// Writing has no goroutine of its own: the session that finds nobody writing
// writes for all, and passes that duty on when its own replies are in.
type link struct {
	// Static after construction.
	conn        net.Conn
	exact       bool // conn.Write counts the bytes the kernel took; TLS does not
	whole       bool // replies are handed over in whole frames (shared pipe)
	spills      bool // what follows an error may belong to it: see reader.give
	maxInflight int64
	refused     func(reply []byte) // is shown the errors that Redis answers

	dead    atomic.Bool // nobody else may have it: failed or retired is set, or an error may have spilled
	replied atomic.Bool // some request got all its replies

	mu      sync.Mutex // guards all below
	wait    sync.Cond  // for room, and for the writer to leave a failed link
	pending chain
	flight  chain
	outgoing
	occupied
	over
}

// outgoing is what a link writes, and who writes it.
type outgoing struct {
	out      *batch   // bytes of pending
	spare    *batch   // the other batch, nil while it is being written
	writing  bool     // some session is the writer, or has been told to be
	writer   *Request // the one whose session is in the system call; nil: none is
	writes   uint64   // such calls so far
	appended int64    // bytes of stream appended to out so far
	handed   int64    // the kernel has surely not seen the stream from here on (valid while !writing)
}

// occupied is how much of a link's room is taken.
type occupied struct {
	bytes   int64 // of requests under way
	count   int   // requests under way
	waiting int   // sessions that wait for room
}

// over is why a link takes no request any more.
type over struct {
	failed  error // those under way fail as well
	retired error // those under way are still answered
}

func newLink(conn net.Conn, whole bool, maxInflight int64) *link {
	_, secure := conn.(*tls.Conn)
	l := &link{conn: conn, exact: !secure, whole: whole, maxInflight: maxInflight, refused: func([]byte) {}}
	l.out, l.spare = &batch{}, &batch{}
	l.wait.L = &l.mu
	return l
}

// do sends r and returns when its outcome is known: nil, *LostError, *NotSentError.
func (l *link) do(r *Request) error {
	lead, alone, err := l.queue(r)
	if err != nil {
		return err
	}
	if lead {
		l.write(r, alone)
	}
	return l.awaitReply(r)
}

// queue queues r, when there is room. lead: its session is the link's writer; alone: nothing else is under way.
func (l *link) queue(r *Request) (lead, alone bool, err error) {
	r.abandon(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beginRequest(r)
	for l.takes() == nil && l.full() && r.ended == nil {
		l.waiting++
		l.wait.Wait()
		l.waiting--
	}
	if err = l.takes(); err == nil {
		err = r.ended
	}
	if err != nil {
		return false, false, &NotSentError{Cause: err}
	}
	lead = !l.writing
	l.push(r)
	return lead, l.count == 1, nil
}

// joinRequest queues r if some session writes, and there is room; else it does nothing and returns false. A session that has
// its replies and still writes for others is not joined, since it could not pass that duty on to a request that joins.
func (l *link) joinRequest(r *Request) bool {
	r.abandon(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.writing, l.writer != nil && l.writer.served(), l.takes() != nil, l.full():
		return false
	}
	l.beginRequest(r)
	r.beside = true
	l.push(r)
	return true
}

// beginRequest begins the way of r over the link; mu is held.
func (l *link) beginRequest(r *Request) {
	if r.on.Load() != l { // a store costs more than a load
		r.on.Store(l)
	}
	r.turn, r.ended, r.within, r.beside = r.Turn, nil, 0, false
	for len(r.wake) > 0 { // left by an End that came too late for the Do before
		<-r.wake
	}
}

// push puts r behind what is pending; mu is held.
func (l *link) push(r *Request) {
	r.off, r.err = l.appended, nil
	l.appended += r.size
	l.out.addCommands(r.Cmds)
	l.pending.push(r)
	l.bytes += r.size
	l.count++
	l.writing = true
}

// awaitReply returns when the outcome of r, which has been queued, is known.
func (l *link) awaitReply(r *Request) error {
	for {
		switch <-r.wake {
		case wakeWrite:
			l.write(r, false)
		case wakeEnd:
			if l.abandon(r) {
				return &LostError{Cause: r.ended}
			}
		default:
			return r.err
		}
	}
}

// abandon stops waiting for r, whose replies are then dropped as they come. It returns false if r is done all the same:
// then wakeDone is in r.wake, or comes next.
func (l *link) abandon(r *Request) bool {
	for !r.at.CompareAndSwap(atRest, atNobody) { // replies are handed over, which does not block on a shared pipe
		runtime.Gosched()
	}
	if r.Replied == len(r.Cmds) {
		r.exit()
		return false
	}
	duty := false
	l.mu.Lock()
	select {
	case s := <-r.wake:
		if s == wakeDone && r.err != nil { // the link has ended
			r.exit()
			r.wake <- s
			l.mu.Unlock()
			return false
		}
		duty = s == wakeWrite
	default:
	}
	r.left = true // from now on its session is not made the writer
	l.mu.Unlock()
	if duty {
		l.write(r, false)
	}
	return true
}

// takes says why the link takes no request any more; nil: it does.
func (o *over) takes() error {
	if o.failed != nil {
		return o.failed
	}
	return o.retired
}

// full says that a new request must wait. A long one is let in whole as soon as
// there is any room, so that it cannot starve.
func (l *link) full() bool { return l.bytes >= l.maxInflight || l.count >= maxQueued }

// write is the writer's loop, run by own's session: it writes until nothing is
// pending, or until own is done and another session can go on.
func (l *link) write(own *Request, alone bool) {
	for {
		if !alone {
			// Other clients' requests are under way, so their sessions are
			// about to append more: let them, one write is cheaper than two.
			runtime.Gosched()
		}
		alone = false
		now := telemetry.Clock()
		l.mu.Lock()
		if l.failed != nil {
			l.leaveWriting()
			return
		}
		b := l.out
		l.out, l.spare = l.spare, nil
		end := l.appended
		for r := l.pending.head; r != nil; r = r.next {
			r.Sent = now
		}
		l.flight.appendChain(&l.pending)
		l.writer = own
		l.writes++
		l.mu.Unlock()

		n, err := b.writeTo(l.conn)
		b.reset()

		l.mu.Lock()
		l.spare, l.writer = b, nil
		if err == nil || !l.exact {
			l.handed = end
		} else {
			l.handed += n
		}
		if err != nil {
			l.failLocked(err)
		}
		if l.failed != nil || l.pending.head == nil {
			l.leaveWriting()
			return
		}
		if next := l.pending.successor(); next != nil && own.served() {
			next.wake <- wakeWrite // does not block: a pending request has no wakeDone yet
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
	}
}

// leaveWriting ends the writer's duty. mu is held, and released.
func (l *link) leaveWriting() {
	l.writing = false
	if l.failed != nil {
		l.wait.Broadcast()
	}
	l.mu.Unlock()
}

// fail ends the link: nothing is taken any more, the connection is closed, and
// serve settles what is under way. The first cause is kept.
func (l *link) fail(cause error) {
	l.mu.Lock()
	l.failLocked(cause)
	l.mu.Unlock()
}

// retire ends the link as fail does, but only after the requests under way have been answered. New ones are refused at
// once.
func (l *link) retire(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.takes() != nil {
		return
	}
	l.retired = cause
	l.dead.Store(true)
	l.wait.Broadcast()
	l.endRetired()
}

// endRetired ends a link that has retired and has answered everything; mu is held.
func (l *link) endRetired() {
	if l.retired != nil && l.count == 0 {
		l.failLocked(l.retired)
	}
}

func (l *link) failLocked(cause error) {
	if l.failed != nil {
		return
	}
	l.failed = cause
	l.dead.Store(true)
	l.wait.Broadcast()
	l.conn.Close()
}

// serve reads replies until the connection ends, settles every request that is
// still under way, and returns why the link ended.
func (l *link) serve() error {
	rd := newReader(l)
	l.fail(rd.readUntilLost())

	l.mu.Lock()
	for l.writing { // handed is final when nobody writes
		l.wait.Wait()
	}
	rd.chain.appendChain(&l.flight)
	rd.chain.appendChain(&l.pending)
	handed, cause := l.handed, l.failed
	l.mu.Unlock()
	if cause == errClosedByRedis && rd.chain.head == nil {
		return errUnused
	}
	for rd.chain.head != nil {
		r := rd.chain.pop()
		why := l.endedFor(r, cause)
		if r.off >= handed {
			r.err = &NotSentError{Cause: why}
		} else {
			r.err = &LostError{Cause: why}
		}
		r.wake <- wakeDone
	}
	return cause
}

// endedFor returns the cause that End gave for r, or else cause.
func (l *link) endedFor(r *Request, cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.ended != nil {
		return r.ended
	}
	return cause
}

// passFlight hands the reader all requests whose bytes a writer has collected.
func (l *link) passFlight(to *chain) {
	l.mu.Lock()
	to.appendChain(&l.flight)
	l.mu.Unlock()
}

// settle gives back the room of answered requests.
func (l *link) settle(count int, bytes int64) {
	l.mu.Lock()
	l.count -= count
	l.bytes -= bytes
	// Only when the link is half empty, so that the waiting sessions are not woken at every reply.
	if l.waiting > 0 && l.bytes <= l.maxInflight/2 && l.count <= maxQueued/2 {
		l.wait.Broadcast()
	}
	l.endRetired()
	l.mu.Unlock()
}
