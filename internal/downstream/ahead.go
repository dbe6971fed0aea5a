package downstream

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"
)

// A client may write all of a long pipeline before it reads a reply. Redis keeps the replies meanwhile. Here they stay on their
// way, and what is kept is what the client goes on to send: else both sides would wait for each other for ever.
const (
	stalledAfter = 100 * time.Millisecond // a write that takes longer waits for its client
	stalledEvery = 200 * time.Millisecond // how often clients are looked at. A write that succeeds at once pays nothing for it
	stalledCalm  = time.Second            // the same while there are no clients
	firstAhead   = 4 << 10                // most clients that do not read send nothing either
	pieceAhead   = 64 << 10
	mostAhead    = 1 << 30 // of one client, as Redis' client-query-buffer-limit
)

// ahead is what a client has sent while a write to it waited, and nobody has read as commands yet. The goroutine that reads ahead
// owns all but reading and halt; without one, whoever reads from the Conn does.
type ahead struct {
	done    chan struct{} // closed by the goroutine that reads ahead; nil: there is none. readSide.mu guards it
	halt    bool          // that goroutine is to end; readSide.mu guards it
	reading atomic.Bool   // somebody else is reading; set with readSide.mu held

	pieces  [][]byte // each filled in turn
	taken   int      // bytes of the first piece that have been read as commands
	room    int      // bytes that all pieces have room for
	err     error    // what ended the stream behind the pieces
	account account  // in Gate.ahead
}

// ReadAhead reads ahead of clients that send more commands while they do not read their replies, until ctx ends. clients appends
// those that there are to its argument.
func ReadAhead(ctx context.Context, clients func(to []*Conn) []*Conn) {
	tick := time.NewTimer(stalledCalm)
	defer tick.Stop()
	var all []*Conn
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		all = clients(all[:0])
		if len(all) > 0 {
			tick.Reset(stalledEvery)
		} else {
			tick.Reset(stalledCalm)
		}
		now := time.Now()
		for _, c := range all {
			c.startAhead(now)
		}
		clear(all)
	}
}

// startAhead starts reading ahead if a write to the client waits, and nobody reads from it. A client that has yet to authenticate
// may not make this process keep much.
func (c *Conn) startAhead(now time.Time) {
	c.write.arm.Lock()
	defer c.write.arm.Unlock()
	if c.write.held == 0 || now.Sub(c.write.since) < stalledAfter || c.read.small.Load() {
		return
	}
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	a := &c.read.ahead
	if a.done != nil || a.reading.Load() || a.err != nil || c.ending.over.Load() {
		return
	}
	c.write.ahead = true
	a.done, a.halt = make(chan struct{}), false
	go c.readAhead(a.done)
}

// readAhead keeps what the client sends until the write is over that waits for it, somebody else wants to read, or no more may be
// kept. haltAhead waits for it.
func (c *Conn) readAhead(done chan<- struct{}) {
	defer close(done)
	a, armed := &c.read.ahead, time.Now()
	for c.armAhead(c.hasRoomAhead()) {
		last := len(a.pieces) - 1
		p := a.pieces[last]
		n, err := c.readSocket(p[len(p):cap(p)])
		a.pieces[last] = p[:len(p)+n]
		if idle := c.gate.bounds.Load().IdleTimeout; n > 0 && idle > 0 && time.Since(armed) > idle/4 {
			armed = time.Now()
			c.rearmWrite() // a client that sends is not idle
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			a.err = err
		}
	}
}

// armAhead prepares the next read ahead. It says false when there is to be none, as without room for it.
func (c *Conn) armAhead(room bool) bool {
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	a := &c.read.ahead
	if a.halt || !room || c.ending.over.Load() {
		a.done = nil
		return false
	}
	c.setReadDeadline(time.Time{}) // one that Wake has set is not for this reader
	return true
}

// hasRoomAhead says whether there is room for more that the client may send, and makes some. It may drop another client, so no lock is
// held: the other one may be about to drop this one.
func (c *Conn) hasRoomAhead() bool {
	a := &c.read.ahead
	if a.err != nil {
		return false
	}
	if last := len(a.pieces) - 1; last >= 0 && len(a.pieces[last]) < cap(a.pieces[last]) {
		return true
	}
	size := pieceAhead
	if len(a.pieces) == 0 {
		size = firstAhead
	}
	if a.room+size > mostAhead || !c.gate.ahead.take(&a.account, a.room+size) {
		return false
	}
	a.pieces = append(a.pieces, make([]byte, 0, size))
	a.room += size
	return true
}

// haltAhead ends the reading ahead, and returns when nobody reads any more. read.mu is held, but not meanwhile.
func (c *Conn) haltAhead() {
	done := c.read.ahead.done
	c.endAhead()
	c.read.mu.Unlock()
	<-done
	c.read.mu.Lock()
}

// endAhead is haltAhead for who does not wait. read.mu is held.
func (c *Conn) endAhead() {
	if c.read.ahead.done != nil {
		c.read.ahead.halt = true
		c.setReadDeadline(past)
	}
}

// beginRead lets the caller read, until due if that is from the socket. read.mu is held, and nobody reads ahead.
func (c *Conn) beginRead(due time.Time) {
	if len(c.read.ahead.pieces) == 0 {
		c.setReadDeadline(due)
	}
	c.read.ahead.reading.Store(true)
}

// readNext reads what the client has sent: first what was read ahead. beginRead has been called.
func (c *Conn) readNext(p []byte) (n int, err error) {
	switch a := &c.read.ahead; {
	case len(a.pieces) > 0:
		n = c.takeAhead(p)
	case a.err != nil:
		err = a.err
	default:
		n, err = c.readSocket(p)
	}
	c.read.ahead.reading.Store(false)
	return n, err
}

// takeAhead takes what was read ahead, a piece at a time. It returns 0 for a piece that has nothing in it.
func (c *Conn) takeAhead(p []byte) int {
	a := &c.read.ahead
	first := a.pieces[0]
	n := copy(p, first[a.taken:])
	if a.taken += n; a.taken < len(first) {
		return n
	}
	a.pieces[0], a.taken = nil, 0
	a.room -= cap(first)
	if a.pieces = a.pieces[1:]; len(a.pieces) == 0 {
		a.pieces = nil
	}
	c.gate.ahead.set(&a.account, a.room)
	return n
}

// dropAhead throws away what was read ahead, when the connection is over.
func (c *Conn) dropAhead() {
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	a := &c.read.ahead
	for a.done != nil {
		c.haltAhead()
	}
	a.pieces, a.taken, a.room = nil, 0, 0
	c.gate.ahead.set(&a.account, 0)
}
