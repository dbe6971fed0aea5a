package session

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// dedicated is a session's connection of its own, for as long as Redis keeps something for it there. Commands go out as the
// client sends them, without waiting for replies; what comes back goes to the client from the connection's own goroutine
// (relay.go). When no reply is pending and no state is left, the connection is given back.
type dedicated struct {
	s                *Session
	view             *dedicatedView // what it shows of itself
	conn             *upstream.Dedicated
	node             *cluster.Node     // where it is, in a cluster; else nil
	slots            dedicatedSlots    // of a cluster
	subscriptions    *subscriptions    // whose it is, in a cluster, if it is for messages; else nil
	subscriptionConn *subscriptionConn // as which

	queue        []byte // commands to be sent together; the session's goroutine only
	replyTimeout replyTimeout

	mu      sync.Mutex      // guards all below
	changed sync.Cond       // a reply has become pending, or the connection is over
	pending []*pendingReply // oldest first
	waits   int             // of these, commands that may wait
	kept    downstream.Account
	state   dedicatedState
	tainted bool       // not to be used by another client
	targets []*Session // whose connections it has named for invalidations

	held      bool         // the session is about to use it: it is not given back now
	released  bool         // given back or lost: the session must let go of it
	ended     bool         // it was lost
	lostState *lostState   // by that
	making    bool         // a restore has yet to make again what was lost before
	doubt     bool         // with a command whose outcome is unknown
	rights    rightsChange // that commands sent here may bring, in a transaction perhaps

	scan     resp.Scanner
	head     []byte // what has come of the frame at hand, while it is kept back
	start    []byte // its first bytes
	kind     frameKind
	passing  bool               // it is passed on, or dropped, piece by piece
	dropping bool               // it is not for the client
	out      []byte             // not written yet
	whole    int                // bytes of out that end with a whole frame
	to       downstream.Passage // to the client
}

// currentDedicated is the session's own connection if it still has one. It is then kept until release.
func (s *Session) currentDedicated() *dedicated {
	p := s.dedicated
	if p == nil {
		return s.takeRestored()
	}
	p.mu.Lock()
	released, doubt, db, left := p.released, p.doubt, p.state.db, p.lostState
	p.held = !released
	p.mu.Unlock()
	if db != s.ident.DB { // SELECT within a transaction
		id := s.ident
		id.DB = db
		admitted := s.admitted
		s.identity(id)
		s.admitted = admitted
	}
	if !released {
		return p
	}
	s.dedicated = nil
	if l := s.engine.Load(); l != nil && doubt {
		l.Doubt()
	}
	if left != nil {
		p.forgetQueued()
		s.addLostState(*left)
	}
	return s.takeRestored()
}

// release says that the session's own connection is not about to be used: it may be given back.
func (s *Session) release() {
	p := s.dedicated
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = false
	p.giveBackIfUnused()
}

// runDedicated has a command run for a session that has a connection of its own, or needs one for it.
func (s *Session) runDedicated(p *dedicated, cmd redcon.Command, c *commandtable.Command, answer answer) {
	defer s.release()
	s.forward()
	if s.guard.Over() {
		return
	}
	if p == nil {
		var err error
		if p, err = s.openDedicated(); tooManyUpstream(err) && answer == nil && c != nil && c.ReadOnly && c.Conn == commandtable.ConnNone {
			s.enqueue(cmd.Raw, cmd.Args, c) // only writes are paused
			return
		} else if err != nil {
			s.dedicatedFailed(c, err)
			return
		}
	}
	if c == nil && answer != nil {
		if c, answer = s.resolve(cmd.Args); c == nil {
			p.taint() // whatever it is, nobody else gets this connection
		}
	}
	if c != nil && c.Conn != commandtable.ConnNone || answer == nil {
		s.send(p, cmd, c)
		return
	}
	s.answerDedicated(p, cmd, c, answer)
}

// dedicatedFailed answers a command for which there is no connection.
func (s *Session) dedicatedFailed(c *commandtable.Command, err error) {
	kind := commandtable.ConnNone
	if c != nil {
		kind = c.Conn
	}
	s.notBegun(kind, err)
	s.noteTrouble(err)
}

// needsAuth says that the client must log in first.
func needsAuth(err error) bool {
	var reply *upstream.ReplyError
	return errors.As(err, &reply) && strings.HasPrefix(reply.Line, "NOAUTH")
}

// notBegun is fail for a command of that kind, which was not run. What follows MULTI or WATCH would do harm without, unless a
// password lacks: then Redis refuses that, too.
func (s *Session) notBegun(k commandtable.ConnKind, err error) {
	switch {
	case needsAuth(err), s.closesFor(err):
	case k == commandtable.ConnMulti:
		s.addLostState(lostState{multi: true, cause: err})
		s.ok()
		return
	case k == commandtable.ConnWatch:
		s.addLostState(lostState{watch: true, cause: err})
	}
	s.fail(err)
}

// send relays one command.
func (s *Session) send(p *dedicated, cmd redcon.Command, c *commandtable.Command) {
	e := &pendingReply{cmd: c}
	if c != nil {
		e.kind = c.Conn
		switch e.kind {
		case commandtable.ConnBlock, commandtable.ConnWait:
			e.blocks = true
			e.waits = waitsFor(c, cmd.Args)
			e.shuts = c.Name == "shutdown"
		case commandtable.ConnSubscribe:
			e.args, e.effect.subs = len(cmd.Args)-1, e
		case commandtable.ConnWatch, commandtable.ConnExec, commandtable.ConnDiscard:
			e.args = len(cmd.Args) - 1
		case commandtable.ConnTracking:
			cmd.Raw = s.tracking(p, e, cmd)
		}
	}
	if e.kind == commandtable.ConnWait && p.settled() && p.free() {
		// So that the connection's last write, as Redis sees it, is none before now. Who may wait may do this.
		nothing := []string{c.Name, "0", "0", "0"}
		p.tell(nothing[:3+len(c.Name)/len("waitaof")]...)
	}
	if c != nil && c.Name == "client|caching" && len(cmd.Args) == 3 {
		e.effect.caching = string(cmd.Args[2])
	}
	telemetry.Commands.Add(1)
	if c != nil && c.Rights {
		p.mu.Lock()
		p.rights.note(c, cmd.Args)
		p.mu.Unlock()
	}
	if c != nil && c.Script == commandtable.FlushesScripts {
		s.srv.scripts.Clear() // whatever comes of it
	}
	p.send(e, cmd.Raw)
}

// answerDedicated answers here what is not Redis' to answer, once all replies before are in; within a transaction, and
// for subscribers in RESP2, the rules of these hold.
func (s *Session) answerDedicated(p *dedicated, cmd redcon.Command, c *commandtable.Command, answer answer) {
	if !p.settled() {
		return
	}
	s.release()
	multi, mute := false, false
	if p = s.currentDedicated(); p != nil {
		p.mu.Lock()
		multi, mute = p.state.multi, p.state.proto == 2 && p.state.subscribed() > 0
		p.mu.Unlock()
	}
	switch {
	case c.Always: // QUIT, RESET
		answer(s, cmd.Args)
	case multi && c.Barred:
		p.send(&pendingReply{instead: notInMulti}, marking)
	case multi:
		if strings.HasPrefix(c.Name, "client|") {
			p.taint() // what it sets on the connection is this client's
		}
		effect := effectOf(c, cmd.Args)
		p.send(&pendingReply{cmd: c, effect: effect}, s.queuedAs(c, cmd.Raw, effect))
	case mute && c.Subs != nil: // a subcommand that is none
		p.send(&pendingReply{cmd: c}, cmd.Raw)
	case mute:
		s.error("ERR Can't execute '" + c.Name + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context")
	default:
		answer(s, cmd.Args)
	}
}

// marking is a command that does nothing but have Redis, and the embedded store, mark the transaction: an argument lacks.
var marking = resp.AppendCommand(nil, "GET")

const notInMulti = "ERR Command not allowed inside a transaction"

// effectOf is what a command that is answered here, but not in a transaction, does to the connection.
func effectOf(c *commandtable.Command, args [][]byte) effect {
	switch {
	case c.Name == "select" && len(args) == 2:
		n, ok := integer(args[1])
		return effect{selects: ok, db: int(n)}
	case c.Name == "client|pause":
		return effect{pauses: writePause(args)}
	}
	return effect{setting: settingIn(c, args)}
}

// send has a command sent, and its reply go where e says.
func (p *dedicated) send(e *pendingReply, raw []byte) {
	e.quiet = p.s.silent
	p.mu.Lock()
	if p.released { // lost: the replies pending before have been answered
		p.mu.Unlock()
		if e.lost = errGone; e.got == nil {
			p.s.notSent(e)
		}
		return
	}
	p.addPending(e)
	p.view.pending.Store(true)
	if e.blocks {
		p.show()
	}
	most := mostPending
	if p.blocked() {
		most = mostPendingBlocked
	}
	crowded := len(p.pending) >= most
	p.mu.Unlock()
	p.queue = append(p.queue, raw...)
	if len(p.queue) >= flushAt {
		p.flush()
	}
	if crowded {
		p.settle(most / 2)
	}
}

// tell sends a command of this proxy's own; nobody wants its reply.
func (p *dedicated) tell(args ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return
	}
	p.addPending(&pendingReply{own: true})
	p.queue = resp.AppendCommand(p.queue, args...)
}

// ask sends a command and waits for its reply. No other reply may be pending.
func (p *dedicated) ask(e *pendingReply, args ...string) ([]byte, error) {
	var got gathered
	e.got = &got
	defer time.AfterFunc(questionTime, p.endUnanswered).Stop()
	p.send(e, resp.AppendCommand(nil, args...))
	if !p.settled() {
		return nil, &upstream.NotSentError{Cause: errGone}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.lost != nil {
		return nil, &upstream.NotSentError{Cause: e.lost}
	}
	return got, nil
}

// flush sends what is queued. What the client was answered here goes first. A Redis that takes nothing holds up only a
// client that is still there.
func (p *dedicated) flush() {
	if len(p.queue) == 0 {
		return
	}
	p.s.flush()
	var late *time.Timer
	p.s.guard.WhenOver(func() { late = time.AfterFunc(lastReplies, p.conn.Close) })
	p.writing(time.Now())
	_ = p.conn.Write(p.queue) // Ended tells
	p.writing(time.Time{})
	p.s.guard.WhenOver(nil)
	if late != nil && !late.Stop() {
		p.taint()
	}
	p.queue = p.queue[:0]
	if cap(p.queue) > keepBytes {
		p.queue = nil
	}
}

// settled waits until no reply is pending, and says whether that is so and the client is still there.
func (p *dedicated) settled() bool { return p.settle(0) }

// settle is settled for at most so many pending replies.
func (p *dedicated) settle(most int) (paid bool) {
	p.flush()
	p.mu.Lock()
	paid = len(p.pending) <= most
	blocks := !paid && p.blocked()
	p.mu.Unlock()
	switch {
	case paid:
	case blocks:
		p.s.watched(func(ctx context.Context) { paid = p.await(ctx, most) })
	default:
		ctx, cancel := context.WithCancel(p.s.srv.ctx)
		p.s.guard.WhenOver(cancel)
		paid = p.await(ctx, most)
		p.s.guard.WhenOver(nil)
		cancel()
	}
	return paid && !p.s.guard.Over()
}

// await waits until at most so many replies are pending, of which there are none once the connection is over, or ctx ends.
func (p *dedicated) await(ctx context.Context, most int) (paid bool) {
	return p.awaitThat(ctx, func() bool { return len(p.pending) <= most })
}

// awaitThat waits until something holds that Received and Ended may bring about, or ctx ends, and says whether it holds.
// It is looked at with mu held.
func (p *dedicated) awaitThat(ctx context.Context, holds func() bool) bool {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		p.changed.Broadcast()
		p.mu.Unlock()
	})
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !holds() && ctx.Err() == nil {
		p.changed.Wait()
	}
	return holds()
}

// free says that commands are run at once: there is no transaction, and no restriction.
func (p *dedicated) free() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.state.multi && (p.state.proto == 3 || p.state.subscribed() == 0)
}

func (p *dedicated) taint() {
	p.mu.Lock()
	p.tainted = true
	p.mu.Unlock()
}
