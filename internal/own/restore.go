package own

import (
	"context"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

const (
	remakeStep   = 2 * time.Second        // for a connection, and for the answer to each call
	restorePause = 100 * time.Millisecond // between tries
)

// restore makes the subscriptions, MONITOR and CLIENT TRACKING of a lost connection again on another one, under a
// client that is not closed for the loss. The client is not told: what was published meanwhile is missing, as it is
// for any subscriber of Redis whose connection breaks. What it has cached by CLIENT TRACKING it is told to forget when
// the connection is lost, when there is another one, and when it uses that: until then it reads where Redis does not
// track for it.
type restore struct {
	o     *Connections
	what  dedicated.Remains
	ctx   context.Context
	stop  context.CancelFunc
	ended chan struct{} // closed when its goroutine has ended

	mu sync.Mutex // guards is
	is restored
}

// restored is how far a restore has come.
type restored struct {
	p    *conn             // the last try's connection; nil: there was none
	id   upstream.Identity // whose it is
	made bool              // the client may use it
	err  error             // of the last try that has failed
}

// now is how far it has come.
func (r *restore) now() restored {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.is
}

// note changes how far it has come.
func (r *restore) note(change func(*restored)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.is)
}

// Remake starts a restore.
func (p *conn) Remake(what dedicated.Remains) {
	r := &restore{o: p.o, what: what, ended: make(chan struct{})}
	r.ctx, r.stop = context.WithCancel(p.o.Context)
	p.o.restore.Store(r)
	go r.run()
}

// run is the goroutine of a restore. What it tells the client comes last, since it may have to wait for the end of a
// message that is being passed on.
func (r *restore) run() {
	if r.remade() {
		r.forget()
		r.o.client.Reader.Notify() // an idle client uses the new connection at once
	}
}

// remade makes it until it is done; false: it has been given up.
func (r *restore) remade() bool {
	defer close(r.ended)
	defer r.stop()
	o := r.o
	for r.ctx.Err() == nil && !o.client.End.Over() {
		id := o.client.IdentityNow()
		p, err := r.make(id)
		if err == nil && r.install(p, id) {
			return true
		}
		if p != nil {
			p.Drop(r.ctx) // the client may have a part of a message
		}
		switch {
		case err == nil, o.client.IdentityNow() != id: // the client has logged in, or out, meanwhile, or said HELLO
			continue
		case client.Denied(err), o.client.Lockless():
			o.client.End.Cut(downstream.Left, "what its connection upstream had could not be made again: "+err.Error())
			return false
		}
		r.note(func(is *restored) { is.err = err })
		retry.Sleep(o.Context, restorePause, r.ctx.Done())
	}
	return false
}

// forget has a client that is pushed invalidations forget all it has cached.
func (r *restore) forget() {
	o := r.o
	o.client.Writer.WriteLatest(func() []byte {
		if o.View.Tracking.On.Load() && o.client.TakesPushes() {
			return dedicated.ForgetAll
		}
		return nil
	})
}

// make tries once, as id.
func (r *restore) make(id upstream.Identity) (p *conn, err error) {
	ctx, cancel := context.WithTimeout(r.ctx, remakeStep)
	defer cancel()
	if p, err = r.o.dial(ctx, id, r.o.Backend.Node(), nil, &r.o.View); err != nil {
		return nil, err
	}
	p.Remaking()
	r.note(func(is *restored) { is.p, is.id = p, id })
	if r.o.client.IdentityNow() != id { // and tryAgain has not seen p
		return p, &upstream.NotSentError{Cause: dedicated.ErrGone}
	}
	t := r.o.Routes.Load().Table
	for _, e := range r.what.Calls(func(name string) *commandtable.Command { return t.Find([][]byte{[]byte(name)}) }) {
		if !r.call(p, e) {
			return p, &upstream.NotSentError{Cause: dedicated.ErrGone}
		}
		if line, bad := resp.ErrorLine(*e.Got); bad {
			return p, &upstream.ReplyError{Line: line}
		}
	}
	return p, nil
}

// call sends one call, and says whether it was answered in time.
func (r *restore) call(p *conn, e dedicated.Call) bool {
	ctx, cancel := context.WithTimeout(r.ctx, remakeStep)
	defer cancel()
	return p.Exchange(ctx, e.Reply, e.Raw)
}

// install has the client use p from now on, if it still is who it was.
func (r *restore) install(p *conn, id upstream.Identity) bool {
	return p.Made(func() (same bool) {
		if same = r.o.client.IdentityNow() == id; same {
			r.note(func(is *restored) { is.made = true })
		}
		return same
	})
}

// tryAgain ends the try that is under way if it is not made as id, which the client's HELLO has agreed to: what comes
// by it is in the protocol from before, and must not come behind the reply.
func (r *restore) tryAgain(id upstream.Identity) {
	if is := r.now(); is.p != nil && is.id != id {
		is.p.Redo(r.o.client.Context())
	}
}

// takeRestored is the connection that a restore has made, if it has, which is the client's own from now on. What was
// forwarded past it has its replies by then.
func (o *Connections) takeRestored() *conn {
	r := o.restore.Load()
	if r == nil {
		return nil
	}
	is := r.now()
	switch {
	case !is.made, !o.restore.CompareAndSwap(r, nil): // or it is lost again
		return nil
	case is.id != o.client.Identity():
		is.p.Redo(o.client.Context())
		return nil
	}
	o.conn = is.p
	o.forwarder.Send() // with what was read before
	o.client.Flush()
	r.forget()
	return o.current()
}

// await waits for the connection, for a second at most, and returns it as takeRestored does.
func (r *restore) await() (*conn, error) {
	ctx, cancel := context.WithTimeout(r.o.client.Context(), time.Second)
	defer cancel()
	select {
	case <-r.ended:
	case <-ctx.Done():
	}
	if p := r.o.takeRestored(); p != nil {
		return p, nil
	}
	if err := r.now().err; err != nil {
		return nil, err
	}
	return nil, &upstream.NotSentError{Cause: dedicated.ErrGone}
}

// dropRestore ends a restore, and the connection that it has made.
func (o *Connections) dropRestore() {
	for r := o.restore.Swap(nil); r != nil; r = o.restore.Swap(nil) { // another one begins if its connection is lost just now
		r.stop()
		<-r.ended
		if is := r.now(); is.made {
			is.p.Close()
		}
	}
}
