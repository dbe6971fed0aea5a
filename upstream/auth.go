package upstream

import (
	"context"
	"slices"
	"sync"
	"time"
)

// authTurns is how many passwords one Redis is asked about at the same time.
const authTurns = 16

// auths asks Redis about passwords, on connections that carry nothing else. It does not matter as whom they are logged
// in: every user may run AUTH.
type auths struct {
	turns turns

	mu     sync.Mutex
	idle   []*termConn
	logins logins
	closed bool
}

// Authenticate asks Redis, each time, whether a client at that address may log in as user with password. User "" is the
// one-argument AUTH. Redis is asked about authTurns passwords at a time; when more clients wait, their addresses take
// turns, however many clients each address has. The error is a *ReplyError with Redis' own words when it refuses, and a
// *NotSentError when there was no answer within twice the dial time-out, or before ctx ended.
func (n *Node) Authenticate(ctx context.Context, address, user, password string) error {
	return n.inTurn(ctx, address, func(ctx context.Context) error {
		return n.askOn(ctx, Identity{User: user, Password: password}, []step{{words: authWords(user, password)}})
	})
}

// inTurn calls do when a client at that address has its turn.
func (n *Node) inTurn(ctx context.Context, address string, do func(context.Context) error) error {
	ctx, cancel := n.whileOpen(ctx)
	defer cancel()
	ctx, done := context.WithTimeout(ctx, 2*n.opts.DialTimeout)
	defer done()
	if err := n.auths.turns.waitTurn(ctx, address); err != nil {
		return &NotSentError{Cause: err}
	}
	defer n.auths.turns.passTurn()
	return n.patiently(ctx, do)
}

// askOn asks by these steps whether Redis lets id in, on an idle connection, or on a new one; the caller has a turn.
// Redis may close an idle connection at any time, for example because the user who was last logged in on it was
// deleted: then another connection is tried. Asking twice does no harm.
func (n *Node) askOn(ctx context.Context, id Identity, steps []step) error {
	for c := n.auths.pop(); c != nil; c = n.auths.pop() {
		err := n.askOver(ctx, c, id, steps)
		if (Attempt{err, true, timeLeft(ctx)}).Outcome() != SendAgain {
			return err
		}
	}
	c, err := dialTarget(ctx, n.target, n.opts.DialTimeout)
	if err != nil {
		return err
	}
	if err := proveNode(ctx, c.asOwn(), n.target, n.opts.DialTimeout); err != nil {
		c.Close()
		return &NotSentError{Cause: err} // also when the service account is refused, which says nothing about this user
	}
	return n.askOver(ctx, c, id, steps)
}

// askOver asks on a connection, which is kept if it is still of use. The deadline is ctx'.
func (n *Node) askOver(ctx context.Context, c *termConn, id Identity, steps []step) error {
	err := perform(ctx, c, time.Time{}, steps)
	n.auths.keepConn(c, id, err)
	return err
}

// keepConn keeps a connection on which Redis was asked whether it lets id in, and answered so.
func (a *auths) keepConn(c *termConn, id Identity, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err != nil && Refused(err) == nil || a.closed:
		c.Close()
		return
	case err == nil:
		c = a.logins.addLogin(id, c) // the one of before takes its place among the idle ones
	}
	if c != nil {
		a.idle = append(a.idle, c)
	}
}

// pop returns an idle connection, which is idle no more, or nil.
func (a *auths) pop() *termConn {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.idle) > 0 {
		last := len(a.idle) - 1
		c := a.idle[last]
		a.idle = a.idle[:last]
		if c.term.Err() == nil {
			return c
		}
		c.Close()
	}
	return nil
}

// closeIdle closes the idle connections. Those in use are closed by who uses them.
func (a *auths) closeIdle() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for _, c := range a.idle {
		c.Close()
	}
	a.idle = nil
	a.logins.closeLogins()
}

// turns lets authTurns callers go on at a time. The others wait, and their addresses have their turns one after the
// other.
type turns struct {
	mu      sync.Mutex
	taken   int
	waiting waitLines
	order   []string // the addresses that wait, the next one first
}

// waitTurn waits for a turn. The error is ctx's cause.
func (t *turns) waitTurn(ctx context.Context, address string) error {
	t.mu.Lock()
	if t.taken < authTurns {
		t.taken++
		t.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	if t.waiting == nil {
		t.waiting = waitLines{}
	}
	if len(t.waiting[address]) == 0 {
		t.order = append(t.order, address)
	}
	t.waiting[address] = append(t.waiting[address], turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	if !t.leaveLine(address, turn) { // the turn came at the same moment: it is passed on
		t.passTurn()
	}
	return context.Cause(ctx)
}

// leaveLine ends a wait. false: the turn had already come.
func (t *turns) leaveLine(address string, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := t.waiting[address]
	at := slices.Index(line, turn)
	if at < 0 {
		return false
	}
	t.waiting.set(address, slices.Delete(line, at, at+1))
	if len(t.waiting[address]) == 0 {
		t.order = slices.DeleteFunc(t.order, func(a string) bool { return a == address })
	}
	return true
}

// passTurn passes the caller's turn on to the next address that waits, if there is one.
func (t *turns) passTurn() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		t.taken--
		return
	}
	address := t.order[0]
	t.order = t.order[1:]
	line := t.waiting[address]
	close(line[0])
	t.waiting.set(address, line[1:])
	if len(line) > 1 {
		t.order = append(t.order, address)
	}
}

// waitLines are the callers that wait, by address, first come first.
type waitLines map[string][]chan struct{}

// set replaces an address' line.
func (w waitLines) set(address string, line []chan struct{}) {
	if w[address] = line; len(line) == 0 {
		delete(w, address)
	}
}
