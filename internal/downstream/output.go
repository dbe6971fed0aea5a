package downstream

import (
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// OutputLimit is Redis' client-output-buffer-limit for one class of clients. What counts is what this process holds for
// the client: replies gathered and not written yet. A reply that is passed on as it comes is not held.
type OutputLimit struct {
	Hard int           // bytes at which a client is closed at once; 0: none
	Soft int           // bytes at which it is closed when it holds them for a time; 0: none
	For  time.Duration // that time
}

var errOutput = errors.New("output buffer limit")

// outputLimit is that of the client's present class.
func (c *Conn) outputLimit() OutputLimit {
	if c.client.Subscribed() {
		return c.gate.bounds.Load().PubSubOutput
	}
	return c.gate.bounds.Load().NormalOutput
}

// writeDue is the deadline of the next piece of a write when held bytes are not written yet; zero: none. As in Redis a
// client that takes nothing is not cut off for that alone, unless there is an idle time-out. write.arm is held.
func (c *Conn) writeDue(held int, now time.Time) (due time.Time, err error) {
	limit := c.outputLimit()
	if limit.Hard > 0 && held > limit.Hard {
		return due, errOutput
	}
	if limit.Soft == 0 || held <= limit.Soft {
		c.write.soft = time.Time{}
	} else {
		if c.write.soft.IsZero() {
			c.write.soft = now
		}
		due = c.write.soft.Add(limit.For)
		if !now.Before(due) {
			return due, errOutput
		}
	}
	if idle := c.gate.bounds.Load().IdleTimeout; idle > 0 && !c.client.MayIdle() {
		if c.write.due.Sub(now) < idle/2 || c.write.due.After(now.Add(idle)) {
			return earlier(due, now.Add(idle)), nil
		}
		return earlier(due, c.write.due), nil
	}
	return due, nil
}

// softIsOver says whether more than the soft limit has been held for too long.
func (c *Conn) softIsOver() bool {
	c.write.arm.Lock()
	defer c.write.arm.Unlock()
	return !c.write.soft.IsZero() && !time.Now().Before(c.write.soft.Add(c.outputLimit().For))
}

// writeOver notes that a write has ended, behind which so many bytes are still held.
func (c *Conn) writeOver(behind int) {
	c.write.arm.Lock()
	defer c.write.arm.Unlock()
	c.write.held = 0
	if c.write.ahead {
		c.write.ahead = false
		c.read.mu.Lock()
		c.endAhead()
		c.read.mu.Unlock()
	}
	if behind == 0 {
		c.write.soft = time.Time{}
	}
}

// BoundsChanged has the gate's present bounds hold for a read and a write that wait. It may be called by any goroutine, and never blocks.
func (c *Conn) BoundsChanged() {
	c.Wake()
	if !c.rearmWrite() && c.write.dropped.CompareAndSwap(false, true) {
		telemetry.OutputDropped.Add(1)
		c.drop(errOutput.Error())
	}
}

// rearmWrite sets the deadline of the write in progress anew. It says false when that write is above an output limit.
func (c *Conn) rearmWrite() bool {
	c.write.arm.Lock()
	defer c.write.arm.Unlock()
	if c.write.held == 0 {
		return true
	}
	c.write.due = time.Time{} // an idle time-out begins anew, as for a read
	due, err := c.writeDue(c.write.held, time.Now())
	if err != nil {
		return false
	}
	c.write.due = due
	c.ending.mu.Lock()
	defer c.ending.mu.Unlock()
	if !c.ending.over.Load() { // the deadlines that come with the end, after HangUp, are the last ones
		c.Conn.SetWriteDeadline(due)
	}
	return true
}

// drop ends the connection from another goroutine without waiting for anything, not even for TLS' close_notify: the
// client's own goroutine, woken if it reads or writes, closes it. What it gathers is thrown away.
func (c *Conn) drop(why string) {
	c.write.dropped.Store(true)
	c.HangUp(Left, why)
	c.read.mu.Lock()
	c.setReadDeadline(past)
	c.read.mu.Unlock()
	c.Conn.SetWriteDeadline(past)
}

// MayGather says whether held bytes of replies may be held for the client, which is dropped if it may not: by the
// output limit, or by the bound for all clients together. It runs in the reader of a shared pipe and blocks on nobody.
func (c *Conn) MayGather(held int) bool {
	if held > freeBytes {
		c.gather(held)
	}
	return !c.write.dropped.Load()
}

func (c *Conn) gather(held int) {
	if hard := c.outputLimit().Hard; hard > 0 && held > hard && c.write.dropped.CompareAndSwap(false, true) {
		telemetry.OutputDropped.Add(1)
		c.drop(errOutput.Error())
	}
	c.gate.replies.set(&c.write.account, held)
}

// Gathered notes how many bytes of replies are held for the client now.
func (c *Conn) Gathered(held int) { c.gate.replies.set(&c.write.account, held) }
