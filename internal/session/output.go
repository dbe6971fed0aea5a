package session

import (
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lock"
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

// outputLimit is that of the client's class of the moment.
func (g *guard) outputLimit() OutputLimit {
	if g.sess.view.subscribed() {
		return g.srv.o.PubSubOutput
	}
	return g.srv.o.NormalOutput
}

// writeDue is the deadline of the next piece of a write when held bytes are not written yet; zero: none. As in Redis a
// client that takes nothing is not cut off for that alone, unless there is an idle time-out.
func (g *guard) writeDue(held int, now time.Time) (due time.Time, err error) {
	limit := g.outputLimit()
	if limit.Hard > 0 && held > limit.Hard {
		return due, errOutput
	}
	if limit.Soft == 0 || held <= limit.Soft {
		g.soft = time.Time{}
	} else {
		if g.soft.IsZero() {
			g.soft = now
		}
		due = g.soft.Add(limit.For)
		if !now.Before(due) {
			return due, errOutput
		}
	}
	if idle := g.srv.o.IdleTimeout; idle > 0 && !g.mayIdle() {
		if g.wdue.Sub(now) < idle/2 || g.wdue.After(now.Add(idle)) {
			return earlier(due, now.Add(idle)), nil
		}
		return earlier(due, g.wdue), nil
	}
	return due, nil
}

// softIsOver says whether more than the soft limit has been held for too long.
func (g *guard) softIsOver() bool {
	return !g.soft.IsZero() && !time.Now().Before(g.soft.Add(g.outputLimit().For))
}

// mayIdle says whether the client may be silent for as long as it likes, as those that wait for something may in Redis.
func (g *guard) mayIdle() bool {
	v := &g.sess.view
	return v.subscribed() || v.monitor.Load() || v.owed.Load() || g.sess.held() > 0
}

// drop ends the connection from another goroutine without waiting for anything, not even for the last word of TLS: the
// session's own goroutine, woken if it reads or writes, closes it. What it gathers is thrown away.
func (g *guard) drop(why string) {
	g.dropped.Store(true)
	g.hangUp(lock.Left, why)
	g.rmu.Lock()
	g.setReadDeadline(past)
	g.rmu.Unlock()
	g.Conn.SetWriteDeadline(past)
}

// room says whether n more bytes of replies may be gathered. It runs in the reader of a shared pipe and blocks on nobody.
func (b *batch) room(n int) bool {
	held := b.fullSize + len(b.out) + n
	if held > freeBytes {
		g := b.guard
		if hard := g.outputLimit().Hard; hard > 0 && held > hard && g.dropped.CompareAndSwap(false, true) {
			telemetry.OutputDropped.Add(1)
			g.drop(errOutput.Error())
		}
		g.srv.replies.set(&g.reply, held)
	}
	if b.guard.dropped.Load() {
		b.full, b.fullSize, b.out, b.gone = nil, 0, nil, true
		return false
	}
	return true
}
