package downstream

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// Reader is how commands come in: whole, bounded and well-formed, and with the deadlines of the moment. The goroutine
// that reads calls its methods, but for those that say otherwise.
type Reader struct {
	from   *stream
	end    *End
	out    *Writer
	client Client
	gate   *Gate

	guard           *resp.Reader
	rest            []redcon.Command // see Commands
	judged          *Bounds          // whose limits of commands hold; nil: the first ones
	unauthenticated atomic.Bool      // see SetUnauthenticated
	watched         atomic.Bool      // see Watched
	unfinished      Account
	silence         deadlines

	mu       sync.Mutex // guards what follows up to ahead
	mode     mode
	armed    time.Time // the deadline the socket has now
	notified bool      // Client.Notified is to be called
	ahead    ahead
}

// mode is what reads are for.
type mode int

const (
	forCommands mode = iota
	forEnd           // a verb waits: they look for the client's end, and keep what comes for later
	forNothing       // that look is to end now
)

// wokenError ends a read that somebody asked to end. resp.Reader takes it for a timeout, and goes on later.
type wokenError struct{}

func (wokenError) Error() string { return "downstream: read given up on request" }
func (wokenError) Timeout() bool { return true }

// source is the socket as resp.Reader sees it, behind what was read ahead: each read with the deadline of the moment.
type source struct{ r *Reader }

func (s source) Read(p []byte) (int, error) {
	r := s.r
	for {
		if err := r.beforeRead(); err != nil {
			return 0, err
		}
		n, err := r.readNext(p)
		if n > 0 {
			r.silence.grown += n
			r.renewLimits()
			return n, nil
		}
		if err == nil || r.goesOn(err) {
			continue
		}
		r.end.HangUp(r.from.readEnd(err))
		return 0, err
	}
}

// beforeRead sets the read deadline that applies now. An error says that there is to be no read.
func (r *Reader) beforeRead() error {
	unfinished := r.guard.Unfinished()
	r.unfinished.Set(unfinished)
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.ahead.done != nil || r.notified && r.mode == forCommands {
		if r.ahead.done != nil {
			r.haltAhead()
			continue
		}
		r.notified = false
		r.mu.Unlock()
		r.client.Notified()
		r.mu.Lock()
	}
	switch {
	case r.end.Over(): // with mu held, so that the deadline which comes with the end is the last one
		return errOver
	case r.mode == forNothing:
		return wokenError{}
	case r.mode == forEnd:
		r.beginRead(time.Time{})
		return nil
	case r.gate.draining.Load() && unfinished == 0 && r.client.MayLeave():
		r.end.HangUp(Left, "drained")
		return errOver
	}
	r.silence.setDue(r.gate.Bounds(), r.unauthenticated.Load(), unfinished)
	r.beginRead(r.silence.due)
	return nil
}

// goesOn says that a read ended only because the reader was to be woken, and no deadline has really passed.
func (r *Reader) goesOn(err error) bool {
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() || errors.Is(err, syscall.ETIMEDOUT) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mode != forCommands || !r.silence.passed(r.client.MayIdle())
}

// setDeadline is called with mu held.
func (r *Reader) setDeadline(t time.Time) {
	if t.Equal(r.armed) {
		return
	}
	r.armed = t
	r.from.SetReadDeadline(t)
}

// SetUnauthenticated says whether the client has yet to send a password: the commands that come from now on have
// resp.UnauthenticatedLimits then, and it has the time for a hand-shake to send it.
func (r *Reader) SetUnauthenticated(is bool) {
	r.unauthenticated.Store(is)
	if is {
		r.guard.SetLimits(resp.UnauthenticatedLimits)
	} else {
		r.guard.SetLimits(r.gate.Bounds().Commands)
	}
}

// renewLimits puts the gate's limits of commands in force if they may have changed. It is called before guard looks at
// what it has read.
func (r *Reader) renewLimits() {
	if b := r.gate.Bounds(); b != r.judged && !r.unauthenticated.Load() {
		r.judged = b
		r.guard.SetLimits(b.Commands)
	}
}

// CommandCame notes that the client has sent a whole command.
func (r *Reader) CommandCame() { r.silence.commandCame() }

// Wake makes the goroutine that waits for the client's next command check whether to go on, for example at the start of
// a drain. Any goroutine may call it.
func (r *Reader) Wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake()
}

// wake is called with mu held.
func (r *Reader) wake() {
	if r.mode == forCommands {
		r.setDeadline(past)
	}
}

// Notify makes the goroutine that reads call the client's Notified, as soon as it is between two reads. Any
// goroutine may call it. It never blocks.
func (r *Reader) Notify() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notified = true
	r.wake()
}

// interrupt ends the read in progress, whatever it is for, since the connection is over. Any goroutine may call it.
func (r *Reader) interrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setDeadline(past)
}

// NewAccount counts commands that are kept, in --max-query-memory.
func (r *Reader) NewAccount() Account { return r.unfinished.another() }
