// Package client is one client as everything below its session sees it: its connection, who it is, which replies it
// wants, what it has been answered, and what it has of locks. The session makes it and hands it down; nobody asks the
// session for any of it.
package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

// Client is one client. Its own goroutine uses it, but for the methods of which it is said that any goroutine may call
// them.
type Client struct {
	*downstream.Conn
	Process *Process
	Number  int64 // of the connection, at this proxy; CLIENT ID

	Out     *Output // what it has been answered and is not written yet; nil: no command is at work
	Replies Replies
	Debugs  bool // SCRIPT DEBUG was refused: the client believes that its scripts are not run for real
	Step    Steps

	unwatch func() // ends the watch of a verb that has waited; nil: there is none

	locks  atomic.Pointer[LockHolder]
	untold atomic.Bool // see Untold

	mu    sync.Mutex        // guards all below
	ident upstream.Identity // only the client's goroutine changes it, and reads it without mu
	resp3 bool              // see TakesPushes
	said  Said
}

// New returns the client with that number, which is who id says.
func New(p *Process, conn *downstream.Conn, number int64, id upstream.Identity) *Client {
	return &Client{Conn: conn, Process: p, Number: number, ident: id}
}

// Identity is who the client is.
func (c *Client) Identity() upstream.Identity { return c.ident }

// IdentityNow is Identity for any goroutine.
func (c *Client) IdentityNow() upstream.Identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ident
}

// SetIdentity makes the client another one, or have another protocol or database, after Redis has agreed to that.
func (c *Client) SetIdentity(id upstream.Identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ident = id
	c.resp3 = c.resp3 && id.Proto == 3
}

// User is the name of the client's user. Any goroutine may call it.
func (c *Client) User() string { return UserName(c.IdentityNow().User) }

// UserName gives Redis' default user its name.
func UserName(user string) string {
	if user == "" {
		return "default"
	}
	return user
}

// Greeted notes that the client has been given the reply that says which protocol it speaks.
func (c *Client) Greeted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resp3 = c.ident.Proto == 3
}

// TakesPushes says that the client has been answered in RESP3, and knows what a push is. Any goroutine may call it.
func (c *Client) TakesPushes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resp3
}

// Context is the context that ends when the client has gone.
func (c *Client) Context() context.Context { return c.End.Context(c.Process.Context) }

// Pause waits for d, at most until the client has gone.
func (c *Client) Pause(d time.Duration) { retry.Sleep(c.Process.Context, d, c.Context().Done()) }

// Watch writes the replies so far, and runs run with a context that ends when the client goes away, is killed, or is
// cut off by a drain. While run runs, what the client sends is kept for later.
func (c *Client) Watch(run func(ctx context.Context)) {
	defer c.Unwatch()
	c.WatchWaits(func(ctx context.Context, _ context.CancelCauseFunc) {
		ctx.Done()
		run(ctx)
	})
}

// WatchWaits is Watch for what may have to wait: nothing is written, and nobody watches the client, before run, or what
// it calls, waits for the end of ctx. cancel ends ctx, too. The watch goes on until Unwatch, which the caller calls when
// the answer to what has waited is written: to end it takes a moment.
func (c *Client) WatchWaits(run func(ctx context.Context, cancel context.CancelCauseFunc)) {
	ctx, cancel := context.WithCancelCause(c.Context())
	defer cancel(nil)
	w := &watchedWait{Context: ctx, of: c}
	defer w.endWatch()
	run(w, cancel)
}

// Watched says that what WatchWaits has run has waited, and that Unwatch was not called since.
func (c *Client) Watched() bool { return c.unwatch != nil }

// Unwatch ends the watch of the client, if it is watched.
func (c *Client) Unwatch() {
	if c.unwatch != nil {
		c.unwatch()
		c.unwatch = nil
	}
}

// watchedWait is the context of WatchWaits.
type watchedWait struct {
	context.Context
	of   *Client
	once sync.Once
}

// Done is called by those that wait.
func (w *watchedWait) Done() <-chan struct{} {
	w.once.Do(func() {
		w.of.Flush()
		if !w.of.Watched() {
			w.of.unwatch = w.of.Reader.Watch()
		}
	})
	return w.Context.Done()
}

// endWatch has nobody watch the client who has not waited by then.
func (w *watchedWait) endWatch() { w.once.Do(func() {}) }

// Steps counts what a client begins that may make it wait. Now is 0 while no command is at work.
type Steps struct {
	n     uint64 // the client's own
	shown atomic.Uint64
}

// Next begins a step and returns its number.
func (s *Steps) Next() uint64 {
	s.n++
	s.shown.Store(s.n)
	return s.n
}

// Rest says that nothing is under way.
func (s *Steps) Rest() { s.shown.Store(0) }

// Now is the number of the step that is under way; 0: none is. Any goroutine may call it.
func (s *Steps) Now() uint64 { return s.shown.Load() }
