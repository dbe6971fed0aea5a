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
	// lookPeriod is how often Redis is asked whether it still serves clients that have not authenticated. Together with the
	// time that one answer takes it must stay below a second.
	lookPeriod = 400 * time.Millisecond
	// lookPause is the shortest time between two such questions, however often suspect is called.
	lookPause = 50 * time.Millisecond
	// unusedFor is how long a shared connection is kept that has not authenticated and that no client uses: while it is there, Redis is asked.
	unusedFor = 5 * time.Second
)

// errPasswordAsked ends connections that were made while Redis asked no password.
var errPasswordAsked = errors.New("a password is asked for now")

// errRenewed is why Node.Renew ends connections.
var errRenewed = errors.New("made again because users have changed")

// anonymous tracks the connections of a node that have never authenticated. A connection that was made while Redis asked no
// password is called open: Redis goes on serving it after a password has been set. Many clients share our connections, so an open
// one would serve newcomers too. So Redis is asked again and again whether it would serve a new connection; when it would not,
// all open ones end. A connection that was made while a password was needed never has to end: Redis itself answers NOAUTH on it.
type anonymous struct {
	node *Node
	era  atomic.Int64  // changes whenever open connections have to end
	look chan struct{} // one slot: ask Redis at once

	mu      sync.Mutex // a leaf; guards all below
	count   int        // connections that have not authenticated
	watched bool       // watch runs
	told    func(asked bool)
}

// prove finds out whether conn, which has just been made and has not authenticated, is open. It is open unless Redis
// answers NOAUTH. serves says that Redis answered PONG or NOPERM, as only a client that needs no password is answered.
// After an error conn is of no use.
func (a *anonymous) prove(ctx context.Context, conn net.Conn) (open, serves bool, err error) {
	reply, err := Ask(ctx, conn, time.Now().Add(a.node.opts.DialTimeout), "PING")
	if err != nil {
		return false, false, err
	}
	re := Refused(ErrorIn(reply))
	if re != nil && (strings.HasPrefix(re.Line, "ERR max number of clients") || strings.HasPrefix(re.Line, "DENIED")) { // and it closes conn
		return false, false, errors.New("Redis said " + re.Line)
	}
	a.noteAnswer(re)
	return !asksPassword(re), re == nil || strings.HasPrefix(re.Line, "NOPERM"), nil
}

// noteAnswer tells OnPassword's function what Redis' answer to a PING on a new connection means; re is nil for PONG. An
// error that says nothing about the password, such as LOADING, is not passed on. When Redis asks for a password, open
// connections end first: clients that came before must not be served for longer than newcomers.
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

// begin counts a connection that has not authenticated. era is a.era from before the connection was made; false says that it
// has changed since: then an open connection must not be used. The caller is a goroutine for which Node.Close waits, and end
// is called when the connection has ended.
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

// suspect makes watch ask Redis without waiting for lookPeriod. It never blocks.
func (a *anonymous) suspect() { retry.Wake(a.look) }

// watch is the goroutine that asks Redis while there are connections that have not authenticated. Node.Close waits for it.
func (a *anonymous) watch() {
	defer a.node.running.Done()
	var s passwordProbe
	defer s.close()
	for a.rest() {
		a.node.closeUnused()
		ctx, cancel := context.WithTimeout(a.node.ctx, a.node.opts.DialTimeout)
		err := s.ask(ctx, a.node)
		cancel()
		re := Refused(err)
		if err != nil && re == nil {
			continue // Redis could not be asked
		}
		a.noteAnswer(re)
	}
}

// rest waits until it is time to ask Redis again. false: no such connection is left, or the node is closed.
func (a *anonymous) rest() bool {
	retry.Sleep(a.node.ctx, lookPause, nil)
	retry.Sleep(a.node.ctx, lookPeriod-lookPause, a.look)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watched = a.count > 0 && a.node.ctx.Err() == nil
	return a.watched
}

// shut ends all open connections: they take no more requests, and end when they have answered those under way. Later
// requests get a new connection, on which Redis itself serves or refuses them.
func (a *anonymous) shut() {
	a.era.Add(1)
	a.node.eachLink(func(_ Identity, l *link) {
		if l.open {
			l.retire(errPasswordAsked)
		}
	})
	a.node.dedicated.shut()
}

// Renew replaces the connections of the identities for which concerned returns true. Requests under way are answered first; later
// ones go over new connections, or get Redis' refusal. Of the dedicated connections only the idle ones end.
func (n *Node) Renew(concerned func(Identity) bool) {
	if concerned(Identity{}) {
		n.anonymous.era.Add(1)
	}
	n.eachLink(func(id Identity, l *link) {
		if concerned(id) {
			l.retire(errRenewed)
		}
	})
	n.dedicated.renew(concerned)
	n.anonymous.suspect()
}

// OnPassword makes the node call f, from then on, whenever an answer of Redis shows whether it asks for a password, which
// means that it refuses clients that have not authenticated. f may be called by several goroutines at once, and
// repeatedly with the same value. It must not block. Before f is called with true, the node has ended its connections
// that never authenticated.
func (n *Node) OnPassword(f func(asked bool)) {
	n.anonymous.mu.Lock()
	n.anonymous.told = f
	n.anonymous.mu.Unlock()
}

// AsksPassword asks Redis whether it refuses clients that have not authenticated. When it does, the node's connections that never
// authenticated have been ended before this returns. An answer that means neither, such as LOADING, is returned as an error.
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

// passwordProbe is a connection on which Redis is asked repeatedly how it would answer a new one. RESET makes it like a new
// one; Redis before 6.2 does not know RESET, and gets a new connection for each question.
type passwordProbe struct{ conn *ownConn }

// ask returns nil, or a *ReplyError with Redis' answer to PING; any other error says that there was none.
func (s *passwordProbe) ask(ctx context.Context, n *Node) error {
	if s.conn == nil {
		conn, term, err := dialTarget(ctx, n.target, n.opts.DialTimeout)
		if err != nil {
			return err
		}
		s.conn = newOwn(conn, term)
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
