package downstream

import (
	"context"
	"sync"
	"sync/atomic"
)

// How says how a connection ended.
type How int

const (
	// Gone: the client hung up, reset the connection or said QUIT.
	Gone How = iota
	// Left: we closed first, or cannot tell whether the client lives.
	Left
)

// End is how and why a connection ends, and what hears of it. Any goroutine may call its methods.
type End struct {
	of *stream

	over atomic.Bool
	mu   sync.Mutex // guards all below
	how  How
	why  string

	ctx  context.Context // of Context; nil: it has not been needed
	stop context.CancelFunc
}

// Over says that the connection has ended.
func (e *End) Over() bool { return e.over.Load() }

// HangUp notes the end of the connection, and wakes what the client waits for. Only the first call gives the
// reason. The socket stays open for replies already due.
func (e *End) HangUp(how How, why string) { e.noteReason(how, why, func() {}) }

// Cut ends the connection at once, whatever the client is doing. Nothing that is woken by it can write any more.
func (e *End) Cut(how How, why string) { e.noteReason(how, why, e.CloseNow) }

// noteReason notes the end, unless an end is noted already, and calls before. Then it wakes what the client waits for.
func (e *End) noteReason(how How, why string, before func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := !e.over.Load()
	if first {
		e.how, e.why = how, why
		e.over.Store(true)
	}
	before()
	if first && e.ctx != nil {
		e.stop()
	}
}

// CloseNow closes the socket without waiting for anything.
func (e *End) CloseNow() { closeNow(e.of.Conn) }

// Reason is how and why the connection ended.
func (e *End) Reason() (How, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.how, e.why
}

// Context is the context that ends with the connection, or with parent, which is the same each time. It is made once:
// to make one for each command would cost more than the rest of that command's way to a node.
func (e *End) Context(parent context.Context) context.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx == nil {
		e.ctx, e.stop = context.WithCancel(parent)
		if e.over.Load() {
			e.stop()
		}
	}
	return e.ctx
}

// ClientGone says whether the client has ended the connection, as far as this machine can know: even if that has not
// been read yet.
func (e *End) ClientGone() bool {
	if e.Over() {
		return true
	}
	socket := socketOf(e.of.Conn)
	return socket != nil && peerHasGone(socket)
}
