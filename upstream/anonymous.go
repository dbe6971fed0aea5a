package upstream

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const (
	// lookPeriod is how often Redis is asked whether it still serves clients that have not authenticated. With the time of one
	// such look it must stay below a second.
	lookPeriod = 400 * time.Millisecond
	// lookPause is between two looks at least, however many refusals there are.
	lookPause = 50 * time.Millisecond
)

// errPasswordAsked ends connections that were made while Redis asked no password.
var errPasswordAsked = errors.New("a password is asked for now")

// errRenewed is why Node.Renew ends connections.
var errRenewed = errors.New("made again because users have changed")

// anonymous knows the connections of a node that have never authenticated. Those that were made while Redis asked no password
// are open: Redis goes on serving them when a password is set later. Many clients share ours, so that newcomers would be
// served too. So Redis is asked, again and again, whether it would serve a new connection; when it would not, all open ones
// end. One that was made while a password was needed never has to end: Redis itself answers NOAUTH there, as long as it should.
type anonymous struct {
	node *Node
	era  atomic.Int64  // how often Redis was found to ask for a password
	look chan struct{} // one slot: look at once

	mu      sync.Mutex // a leaf; guards all below
	count   int        // connections that have not authenticated
	watched bool       // watch runs
	told    func(asked bool)
}

// prove finds out whether conn, which has just been made and has not authenticated, is open. What cannot be told counts as
// open; serves says that Redis has told. The error says that conn is of no use.
func (a *anonymous) prove(ctx context.Context, conn net.Conn) (open, serves bool, err error) {
	conn.SetDeadline(time.Now().Add(a.node.opts.DialTimeout))
	err = ask(ctx, conn, resp.AppendCommand(nil, "PING"), 1)
	re := Refused(err)
	switch {
	case err == nil:
	case re == nil:
		return false, false, err
	case strings.HasPrefix(re.Line, "ERR max number of clients"), strings.HasPrefix(re.Line, "DENIED"): // and it closes conn
		return false, false, errors.New("Redis said " + re.Line)
	}
	conn.SetDeadline(time.Time{})
	a.noteAnswer(re)
	return !asksPassword(re), re == nil || strings.HasPrefix(re.Line, "NOPERM"), nil
}

// noteAnswer passes on what the answer to a PING on a new connection says; nil is PONG. Redis asks for the
// password before it looks at anything else, but an error that has another reason is taken for no answer. Open connections
// end before anybody is told that a password is asked for: who is in must not be served for longer than newcomers are.
func (a *anonymous) noteAnswer(re *ReplyError) {
	if asksPassword(re) {
		a.shut()
	}
	a.mu.Lock()
	told := a.told
	a.mu.Unlock()
	switch {
	case told == nil:
	case asksPassword(re):
		told(true)
	case re == nil || SaidInside(re.Line):
		told(false)
	}
}

// SaidInside says whether an error in answer to PING is one that Redis gives only to clients that need not authenticate any more: the
// user may not run PING, or Redis cannot save and refuses PING as it refuses writes.
func SaidInside(line string) bool {
	return strings.HasPrefix(line, "NOPERM") || strings.HasPrefix(line, "MISCONF")
}

// asksPassword says that an answer means: authenticate first.
func asksPassword(re *ReplyError) bool { return re != nil && strings.HasPrefix(re.Line, "NOAUTH") }

// begin counts a connection that has not authenticated, and was proven in that era. false: if it is open it must not be used,
// the open ones have ended since. Who has called begin calls end when the connection has ended, and is somebody for whom
// Node.Close waits.
func (a *anonymous) begin(era int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count++
	if !a.watched {
		a.watched = true
		a.node.running.Add(1)
		go a.watch()
	}
	return a.era.Load() == era
}

func (a *anonymous) end() {
	a.mu.Lock()
	a.count--
	a.mu.Unlock()
}

// suspect has Redis asked at once. It never blocks.
func (a *anonymous) suspect() { retry.Wake(a.look) }

// watch is the goroutine that asks Redis while there are connections that have not authenticated. Node.Close waits for it.
func (a *anonymous) watch() {
	defer a.node.running.Done()
	var s passwordProbe
	defer s.close()
	for a.rest() {
		ctx, cancel := context.WithTimeout(a.node.ctx, a.node.opts.DialTimeout)
		err := s.ask(ctx, a.node)
		cancel()
		re := Refused(err)
		if err != nil && re == nil {
			continue // it could not be asked
		}
		a.noteAnswer(re)
	}
}

// rest waits until it is time for a look; false: there is nothing to look at any more.
func (a *anonymous) rest() bool {
	retry.Sleep(a.node.ctx, lookPause, nil)
	retry.Sleep(a.node.ctx, lookPeriod-lookPause, a.look)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watched = a.count > 0 && a.node.ctx.Err() == nil
	return a.watched
}

// shut ends all open connections: they take no more requests, and end when they have answered those under way. What is
// asked later gets a new connection, on which Redis says what it thinks of it.
func (a *anonymous) shut() {
	a.era.Add(1)
	n := a.node
	n.mu.Lock()
	for _, p := range n.shared {
		p.retireOpen()
	}
	for p := range n.private {
		p.retireOpen()
	}
	n.mu.Unlock()
	n.dedicated.shut()
}

// Renew has the connections of the identities concerned made again: what is under way there is answered first, and what is
// asked later goes over new ones, or is told what Redis has against them. Those that serve one client stay, unless they are idle.
func (n *Node) Renew(concerned func(Identity) bool) {
	if concerned(Identity{}) {
		n.anonymous.era.Add(1)
	}
	n.mu.Lock()
	for _, p := range n.shared {
		p.renew(concerned)
	}
	for p := range n.private {
		p.renew(concerned)
	}
	n.mu.Unlock()
	n.dedicated.renew(concerned)
	n.anonymous.suspect()
}

func (p *Pipe) renew(concerned func(Identity) bool) {
	if l := p.link.Load(); l != nil && concerned(p.id) {
		l.retire(errRenewed)
	}
}

// retireOpen ends the pipe's connection if it is an open one.
func (p *Pipe) retireOpen() {
	if l := p.link.Load(); l != nil && l.open {
		l.retire(errPasswordAsked)
	}
}

// OnPassword has f called, from then on, whenever Redis has told whether it asks for a password: clients that have not
// authenticated are refused then. f may run in several goroutines at once, often with what it knows already, and must not
// block. When Redis begins to ask, the node's connections that never authenticated have been ended before.
func (n *Node) OnPassword(f func(asked bool)) {
	n.anonymous.mu.Lock()
	n.anonymous.told = f
	n.anonymous.mu.Unlock()
}

// AsksPassword asks Redis whether it refuses clients that have not authenticated. An answer that is neither yes nor no is an
// error, LOADING for example. When it does, the node's connections that never authenticated have been ended before this returns.
func (n *Node) AsksPassword(ctx context.Context) (bool, error) {
	var s passwordProbe
	defer s.close()
	err := s.ask(ctx, n)
	switch re := Refused(err); {
	case asksPassword(re):
		n.anonymous.shut()
		return true, nil
	case re != nil && SaidInside(re.Line):
		return false, nil
	}
	return false, err
}

// passwordProbe is a connection on which Redis is asked, time and again, what it would say to a new one. RESET makes it as new;
// where Redis does not know that, as before 6.2, there is a new one each time.
type passwordProbe struct {
	conn net.Conn
	left func() bool
}

// ask returns nil, or a *ReplyError with Redis' answer to PING; any other error says that there was none.
func (s *passwordProbe) ask(ctx context.Context, n *Node) error {
	if s.conn == nil {
		conn, term, err := reach(ctx, n.target, n.opts.DialTimeout)
		if err != nil {
			return err
		}
		s.conn = newOwn(conn)
		s.left = closeAfter(term, s.conn)
	}
	deadline, _ := ctx.Deadline()
	s.conn.SetDeadline(deadline)
	reset := ask(ctx, s.conn, resp.AppendCommand(nil, "RESET"), 1)
	if reset != nil && Refused(reset) == nil {
		s.close()
		return reset
	}
	err := ask(ctx, s.conn, resp.AppendCommand(nil, "PING"), 1)
	if reset != nil || err != nil && Refused(err) == nil {
		s.close()
	}
	return err
}

func (s *passwordProbe) close() {
	if s.conn != nil {
		s.left()
		s.conn.Close()
		s.conn = nil
	}
}

// Serves says that Redis lets clients that have not authenticated run commands, as far as is known: the pipe never authenticated,
// it was made while Redis asked no password, and Redis has not been found to ask for one since.
func (p *Pipe) Serves() bool {
	l := p.link.Load()
	return l != nil && l.serves && !l.dead.Load()
}
