package downstream

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
)

// A client may write all of a long pipeline before it reads a reply. Redis keeps the replies meanwhile. Here they stay
// on their way, and what is kept is what the client goes on to send: else both sides would wait for each other for
// ever.
const (
	stalledAfter = 100 * time.Millisecond // a write that takes longer waits for its client
	stalledEvery = 200 * time.Millisecond // how often clients are looked at; a write that succeeds at once pays nothing
	stalledCalm  = time.Second            // the same while there are no clients
)

// ahead is a goroutine that reads from the socket while nobody reads commands. It owns kept and err; without it,
// whoever reads does.
type ahead struct {
	done    chan struct{} // closed at its end; nil: there is none. Reader.mu guards it
	halt    bool          // it is to end; Reader.mu guards it
	reading atomic.Bool   // somebody else is reading; set with Reader.mu held
	kept    backlog
	err     error // what ended the stream behind kept
}

// ReadAhead reads ahead of clients that send more commands while they do not read their replies, until ctx ends.
// clients appends those that there are to its argument.
func ReadAhead(ctx context.Context, clients func(to []*Conn) []*Conn) {
	var all []*Conn
	for pause := stalledCalm; retry.Sleep(ctx, pause, nil); {
		all = clients(all[:0])
		if pause = stalledCalm; len(all) > 0 {
			pause = stalledEvery
		}
		now := time.Now()
		for _, c := range all {
			c.Reader.startAhead(now)
		}
		clear(all)
	}
}

// startAhead starts reading ahead if a write to the client waits, and nobody reads from it. A client that has yet to
// authenticate may not make this process keep much.
func (r *Reader) startAhead(now time.Time) {
	if r.unauthenticated.Load() || !r.out.waits(now.Add(-stalledAfter)) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &r.ahead
	if a.done != nil || a.reading.Load() || a.err != nil || r.end.Over() {
		return
	}
	a.done, a.halt = make(chan struct{}), false
	go r.readAhead(a.done)
}

// readAhead keeps what the client sends while a write to it waits, until somebody else wants to read, or no more may be
// kept.
func (r *Reader) readAhead(done chan<- struct{}) {
	defer close(done)
	a, renewed := &r.ahead, time.Now()
	for {
		var space []byte
		if a.err == nil && r.out.waits(time.Now()) {
			space = a.kept.space() // no lock is held: this may drop another client, which may be about to drop this one
		}
		if !r.armAhead(len(space) > 0) {
			return
		}
		n, err := r.from.Read(space)
		a.kept.filled(n)
		if idle := r.gate.Bounds().IdleTimeout; n > 0 && idle > 0 && time.Since(renewed) > idle/4 {
			renewed = time.Now()
			r.out.renewDeadline() // a client that sends is not idle
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			a.err = err
		}
	}
}

// armAhead prepares the next read ahead. It says false when there is to be none, as without room for it.
func (r *Reader) armAhead(room bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &r.ahead
	if a.halt || !room || r.end.Over() {
		a.done = nil
		return false
	}
	r.setDeadline(time.Time{}) // one that Wake has set is not for this reader
	return true
}

// haltAhead ends the reading ahead, and returns when nobody reads any more. mu is held, but not meanwhile.
func (r *Reader) haltAhead() {
	done := r.ahead.done
	r.ahead.halt = true
	r.setDeadline(past)
	r.mu.Unlock()
	<-done
	r.mu.Lock()
}

// beginRead lets the caller read, until due if that is from the socket. mu is held, and nobody reads ahead.
func (r *Reader) beginRead(due time.Time) {
	if r.ahead.kept.empty() {
		r.setDeadline(due)
	}
	r.ahead.reading.Store(true)
}

// readNext reads what the client has sent: first what was read ahead. beginRead has been called.
func (r *Reader) readNext(p []byte) (n int, err error) {
	switch a := &r.ahead; {
	case !a.kept.empty():
		n = a.kept.takeOut(p)
	case a.err != nil:
		err = a.err
	default:
		n, err = r.from.Read(p)
	}
	r.ahead.reading.Store(false)
	return n, err
}

// dropAhead throws away what was read ahead, when the connection is over.
func (r *Reader) dropAhead() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.ahead.done != nil {
		r.haltAhead()
	}
	r.ahead.kept.empties()
}
