package downstream

import (
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// readAhead bounds what a client may pipeline behind a command that waits. A client that sends more is not read from
// until the wait is over; its end is then noticed by keep-alive only.
const readAhead = 1 << 20

// StartWatch makes the client's end be noticed at once although nobody reads its commands: what it sends is kept for
// later. The goroutine that reads commands calls it, and then StopWatch with the channel that it returned.
func (c *Conn) StartWatch() <-chan struct{} {
	done := make(chan struct{})
	c.read.mu.Lock()
	c.read.watching, c.read.waking = true, false
	c.client.Ahead(c.in.Ahead())
	c.setReadDeadline(time.Time{})
	c.read.mu.Unlock()
	go c.watch(done)
	return done
}

// watch reads ahead, so as to see the client's end at once; source.Read notes it. StopWatch waits for it.
func (c *Conn) watch(done chan<- struct{}) {
	defer close(done)
	for {
		err := c.in.ReadAhead(readAhead)
		c.client.Ahead(c.in.Ahead())
		if err == nil {
			continue
		}
		if errors.Is(err, resp.ErrReadAheadFull) {
			c.gate.log.Debug("a waiting client pipelines too much to be watched", "client", c.addr)
		}
		return
	}
}

// HungUp says whether the client has ended the connection, as far as this machine can know: even if that has not been read yet.
// It may be called by any goroutine.
func (c *Conn) HungUp() bool {
	if c.ending.over.Load() {
		return true
	}
	socket := socketOf(c.Conn)
	return socket != nil && peerHasGone(socket)
}

// StopWatch ends the watch, and returns when nobody reads any more.
func (c *Conn) StopWatch(done <-chan struct{}) {
	c.read.mu.Lock()
	c.read.waking = true
	c.setReadDeadline(past)
	c.read.mu.Unlock()
	<-done
	c.read.mu.Lock()
	c.read.watching, c.read.waking = false, false
	c.read.mu.Unlock()
}
