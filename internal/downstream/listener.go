package downstream

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/internal/socket"
)

const (
	firstBackOff = 5 * time.Millisecond // after a failed accept, doubled up to lastBackOff
	lastBackOff  = time.Second
)

// listener hands redcon guarded connections only, and deals with the errors of accepting itself: redcon would spin on
// errors, and close every client when its listener ends.
type listener struct {
	net.Listener
	gate  *Gate
	entry Entry

	// Only used with an Entry that has something in it.
	ctx      context.Context // ends when the listener is closed
	stop     context.CancelFunc
	begin    sync.Once
	entering sync.WaitGroup // clients in enterGate
	entered  chan entrant   // those that are through
	failed   chan error     // what ended acceptLoop
}

func newListener(ln net.Listener, g *Gate, e Entry) *listener {
	l := &listener{Listener: ln, gate: g, entry: e, entered: make(chan entrant), failed: make(chan error, 1)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// Close lets nobody in any more, those in the hand-shake included.
func (l *listener) Close() error {
	l.stop()
	return l.Listener.Close()
}

// closed says that a drain lets nobody in here any more.
func (l *listener) closed() bool { return l.gate.draining.Load() && !l.entry.Operators }

// Accept blocks through a drain, until its end.
func (l *listener) Accept() (net.Conn, error) {
	if l.entry.TLS == nil && !l.wantsHeader() {
		for {
			e, err := l.nextEntrant()
			if err != nil {
				return nil, err
			}
			if g := l.guarded(e); g != nil {
				return g, nil
			}
		}
	}
	l.begin.Do(func() { go l.acceptLoop() })
	for {
		select {
		case e := <-l.entered:
			if g := l.guarded(e); g != nil {
				return g, nil
			}
		case err := <-l.failed:
			l.stop()
			l.entering.Wait()
			return nil, err
		}
	}
}

// acceptLoop starts the entry of each client. Accept waits for its end.
func (l *listener) acceptLoop() {
	for {
		e, err := l.nextEntrant()
		if err != nil {
			l.failed <- err
			return
		}
		l.entering.Add(1)
		go l.enterGate(e)
	}
}

// nextEntrant returns the next client that there is a place for. Its error is the end of the listener.
func (l *listener) nextEntrant() (entrant, error) {
	failures := retry.Backoff{First: firstBackOff, Most: lastBackOff}
	for {
		raw, err := l.Listener.Accept()
		if err == nil {
			failures.Reset()
			if e, ok := l.placed(raw); ok {
				return e, nil
			}
			continue
		}
		if l.gate.draining.Load() {
			<-l.gate.finished.Done()
			return entrant{}, net.ErrClosed
		}
		if errors.Is(err, net.ErrClosed) {
			return entrant{}, err
		}
		wait := failures.Next()
		l.gate.log.Warn("accepting clients failed", "error", err, "retry", wait)
		retry.Sleep(l.gate.ctx, wait, nil)
	}
}

// placed gives an accepted connection its place, or refuses it. With TLS it gets no error, as in Redis, because it
// could not read one before the hand-shake.
func (l *listener) placed(raw net.Conn) (entrant, bool) {
	e := entrant{conn: raw, from: raw.RemoteAddr(), since: time.Now(), entry: &l.entry}
	if l.closed() {
		raw.Close()
		return e, false
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		// Refused when the socket is dead already: then its first read says so.
		_ = tcp.SetKeepAliveConfig(keepAlive())
	}
	e.conn = socket.Direct(raw)
	from := e.from
	if !l.trusted(from) {
		l.gate.notEntered(from, errNotFrom)
		raw.Close()
		return e, false
	}
	if e.place = l.gate.places.takePlace(raw, l.entry.Operators); e.place != nil {
		return e, true
	}
	l.gate.places.noteRefused(tooMany, from)
	if l.entry.TLS == nil {
		tell(raw, tooMany)
	}
	raw.Close()
	return e, false
}

// guarded makes the Conn of a client that has its place; nil in a drain, and for a client from elsewhere that is not
// let in.
func (l *listener) guarded(e entrant) *Conn {
	if l.closed() {
		closeNow(e.conn)
		e.place.Leave()
		return nil
	}
	if l.refusedRemote(e) {
		return nil
	}
	return newConn(e, l.gate)
}

// refusedRemote tells a client from another machine that it is not let in, if that is so, and closes it.
func (l *listener) refusedRemote(e entrant) bool {
	refuse := l.gate.o.RefuseRemote
	if refuse == nil || e.local() {
		return false
	}
	refusal := refuse()
	if refusal == "" {
		return false
	}
	l.gate.places.noteRefused(refusal, e.conn.RemoteAddr())
	tell(e.conn, refusal)
	closeNow(e.conn)
	e.place.Leave()
	return true
}

// tell tells a client that is refused why: best effort, as in Redis. The line fits into the buffer of a new connection, so that
// nobody waits.
func tell(conn net.Conn, refusal string) {
	conn.SetWriteDeadline(time.Now().Add(time.Second))
	conn.Write([]byte(refusal))
}
