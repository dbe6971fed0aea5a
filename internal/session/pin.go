package session

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// pinned is a session's connection of its own, for as long as Redis keeps something for it there. Commands go out as the
// client sends them, without waiting for replies; what comes back goes to the client from the connection's own goroutine
// (relay.go). When nothing is owed and no state is left, the connection is given back.
type pinned struct {
	s    *Session
	conn *upstream.Pinned

	queue []byte // commands to be sent together; the session's goroutine only

	mu      sync.Mutex // guards all below
	changed sync.Cond  // a reply was owed, or the connection is over
	owed    []*expect  // oldest first
	state   pinState
	tainted bool // not to be used by another client

	released bool // given back or lost: the session must let go of it
	ended    bool // it was lost
	doubt    bool // with a command whose outcome is unknown

	scan     resp.Scanner
	head     []byte // what has come of the frame at hand, while it is kept back
	start    []byte // its first bytes
	kind     frameKind
	passing  bool   // it is passed on, or dropped, piece by piece
	dropping bool   // it is not for the client
	out      []byte // not written yet
	whole    int    // bytes of out that end with a whole frame
	inside   bool   // the client has part of a frame, wmu is held
}

// pinnedNow is the session's own connection if it still has one.
func (s *Session) pinnedNow() *pinned {
	p := s.pin
	if p == nil {
		return nil
	}
	p.mu.Lock()
	released, doubt, db := p.released, p.doubt, p.state.db
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
	s.pin = nil
	if l := s.engine.Load(); l != nil && doubt {
		l.Doubt()
	}
	return nil
}

// pinUp gives the session a connection of its own.
func (s *Session) pinUp() (*pinned, error) {
	p := &pinned{s: s, state: pinState{proto: s.ident.Proto, db: s.ident.DB}}
	p.changed.L = &p.mu
	p.mu.Lock() // no reply is looked at before conn is there
	conn, err := s.srv.o.Node.Pin(s.srv.ctx, s.ident, p)
	p.conn = conn
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s.pin = p
	if name := s.clientName(); name != conn.Name {
		p.tell("CLIENT", "SETNAME", name)
		conn.Name = name
	}
	return p, nil
}

// commandPinned has a command run for a session that has a connection of its own, or needs one for it.
func (s *Session) commandPinned(p *pinned, cmd redcon.Command, c *command, answer answer) {
	s.forward()
	if s.guard.over.Load() {
		return
	}
	if p == nil {
		var err error
		if p, err = s.pinUp(); err != nil {
			s.fail(err)
			s.noteTrouble(err)
			if c.pin.cannotFail() {
				s.flush()
				s.guard.hangUp(lock.Left, "no connection upstream for its transaction")
			}
			return
		}
	}
	if c == nil && answer != nil {
		if c, answer = s.resolve(cmd.Args); c == nil {
			p.taint() // whatever it is, nobody else gets this connection
		}
	}
	if c != nil && c.pin != pinNone || answer == nil {
		s.send(p, cmd, c)
		return
	}
	s.answerPinned(p, cmd, c, answer)
}

// send relays one command.
func (s *Session) send(p *pinned, cmd redcon.Command, c *command) {
	e := &expect{cmd: c}
	if c != nil {
		e.kind = c.pin
		switch e.kind {
		case pinBlock, pinWait:
			e.blocks = true
		case pinSubscribe:
			e.args, e.effect.subscribes = len(cmd.Args)-1, true
		case pinTracking:
			e.on = len(cmd.Args) > 2 && equalFold(cmd.Args[2], "ON")
		}
	}
	if e.kind == pinWait && p.settled() && p.free() {
		p.tell("PING") // so that the connection's last write, as Redis sees it, is none before now
	}
	telemetry.Commands.Add(1)
	if c != nil && c.script == flushesScripts {
		s.srv.memory.clear() // whatever comes of it
	}
	p.expect(e, cmd.Raw)
}

// answerPinned answers here what is not Redis' to answer, once all replies before are in; within a transaction, and
// for subscribers in RESP2, the rules of these hold.
func (s *Session) answerPinned(p *pinned, cmd redcon.Command, c *command, answer answer) {
	if !p.settled() {
		return
	}
	p.mu.Lock()
	multi, mute := p.state.multi && !p.released, p.state.proto == 2 && p.state.subscribed() > 0
	p.mu.Unlock()
	switch {
	case c.always: // QUIT, RESET
		answer(s, cmd.Args)
	case multi && c.barred:
		// Redis marks the transaction for a command it does not know.
		p.expect(&expect{instead: notInMulti}, resp.AppendCommand(nil, "LOCKPROXY.NOT.IN.MULTI"))
	case multi:
		p.expect(&expect{cmd: c, effect: selects(c, cmd.Args)}, cmd.Raw)
	case mute:
		s.error("ERR Can't execute '" + c.name + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context")
	default:
		answer(s, cmd.Args)
	}
}

const notInMulti = "ERR Command not allowed inside a transaction"

// selects is the effect of SELECT.
func selects(c *command, args [][]byte) effect {
	if c.name != "select" || len(args) != 2 {
		return effect{}
	}
	n, ok := integer(args[1])
	return effect{selects: ok, db: int(n)}
}

// expect has a command sent, and its reply go where e says.
func (p *pinned) expect(e *expect, raw []byte) {
	e.quiet = p.s.silent
	p.mu.Lock()
	p.owed = append(p.owed, e)
	if p.ended {
		e.lost = errGone
	}
	if e.blocks {
		p.show()
	}
	p.mu.Unlock()
	p.queue = append(p.queue, raw...)
	if len(p.queue) >= flushAt {
		p.flush()
	}
}

// tell sends a command of this proxy's own; nobody wants its reply.
func (p *pinned) tell(args ...string) {
	p.mu.Lock()
	p.owed = append(p.owed, &expect{own: true})
	p.mu.Unlock()
	p.queue = resp.AppendCommand(p.queue, args...)
}

// ask sends a command and waits for its reply. Nothing else must be owed.
func (p *pinned) ask(e *expect, args ...string) ([]byte, error) {
	var got gathered
	e.got = &got
	p.expect(e, resp.AppendCommand(nil, args...))
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

// flush sends what is queued. What the client was answered here goes first.
func (p *pinned) flush() {
	if len(p.queue) == 0 {
		return
	}
	p.s.flush()
	_ = p.conn.Write(p.queue) // Ended tells
	p.queue = p.queue[:0]
	if cap(p.queue) > keepBytes {
		p.queue = nil
	}
}

// settled waits until no reply is owed, and says whether the client is still there.
func (p *pinned) settled() bool {
	p.flush()
	p.mu.Lock()
	paid, blocks := len(p.owed) == 0 || p.ended, p.blocked()
	p.mu.Unlock()
	switch {
	case paid:
	case blocks:
		p.s.watched(p.await)
	default:
		ctx, cancel := context.WithCancel(p.s.srv.ctx)
		p.s.guard.whenOver(cancel)
		p.await(ctx)
		p.s.guard.whenOver(nil)
		cancel()
	}
	return !p.s.guard.over.Load()
}

// await waits until no reply is owed, the connection is over, or ctx ends.
func (p *pinned) await(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		p.changed.Broadcast()
		p.mu.Unlock()
	})
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.owed) > 0 && !p.ended && ctx.Err() == nil {
		p.changed.Wait()
	}
}

// authPinned logs the session's own connection in as well.
func (s *Session) authPinned(p *pinned, args [][]byte) (line string) {
	p.taint()
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = string(a)
	}
	reply, err := p.ask(&expect{}, words...)
	if err != nil {
		return errorLine(err)
	}
	line, _ = isError(reply)
	return line
}

// helloPinned switches the session's own connection to id's protocol, and to its user.
func (s *Session) helloPinned(p *pinned, id upstream.Identity, auth bool) error {
	p.taint()
	words := []string{"HELLO", strconv.Itoa(id.Proto)}
	if auth {
		words = append(words, "AUTH", userName(id.User), id.Password)
	}
	reply, err := p.ask(&expect{effect: effect{proto: id.Proto}}, words...)
	if line, bad := isError(reply); err == nil && bad {
		err = &upstream.ReplyError{Line: line}
	}
	return err
}

// free says that commands are run at once: there is no transaction, and no restriction.
func (p *pinned) free() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.state.multi && (p.state.proto == 3 || p.state.subscribed() == 0)
}

func (p *pinned) taint() {
	p.mu.Lock()
	p.tainted = true
	p.mu.Unlock()
}

// oldest is the command whose reply comes next; mu is held, here and below.
func (p *pinned) oldest() *expect {
	if len(p.owed) == 0 {
		return nil
	}
	return p.owed[0]
}

// pay takes the oldest command off the list.
func (p *pinned) pay() {
	p.owed[0] = nil
	if p.owed = p.owed[1:]; len(p.owed) == 0 {
		p.owed = nil
	}
}

// blocked says that a command which may wait is under way.
func (p *pinned) blocked() bool {
	for _, e := range p.owed {
		if e.blocks {
			return true
		}
	}
	return false
}

// letGo gives the connection back when nothing speaks against it.
func (p *pinned) letGo() {
	if p.released || p.passing || len(p.head) > 0 || len(p.owed) > 0 || !p.state.none() {
		return
	}
	p.released = true
	if p.tainted || p.state.proto != p.conn.Identity.Proto {
		p.conn.Close()
		return
	}
	p.conn.Identity.DB = p.state.db
	p.conn.GiveBack()
}

const lastReplies = 2 * time.Second // for replies owed to a client that has gone

// endPin ends the session's own connection. Replies to commands that do not wait come first, so that their outcome is
// known; so is a waiting one's when locks hang on it.
func (s *Session) endPin() {
	p := s.pin
	if p == nil {
		return
	}
	s.pin = nil
	p.mu.Lock()
	blocked, alone := p.blocked(), len(p.owed) == 1
	p.mu.Unlock()
	if blocked && alone && s.held() > 0 && s.unblock(p) {
		blocked = false
	}
	if how, _ := s.guard.ending(); how == lock.Gone && !blocked {
		ctx, cancel := context.WithTimeout(s.srv.ctx, lastReplies)
		p.await(ctx)
		cancel()
	}
	p.mu.Lock()
	doubt := p.doubt
	for _, e := range p.owed {
		doubt = doubt || !e.own && (e.cmd == nil || !e.cmd.readOnly)
	}
	p.dropLocked()
	p.mu.Unlock()
	if l := s.engine.Load(); l != nil && doubt {
		l.Doubt()
	}
}

// dropPin closes the session's own connection with all its state; nothing is owed there.
func (s *Session) dropPin() {
	if p := s.pin; p != nil {
		s.pin = nil
		p.mu.Lock()
		p.dropLocked()
		p.mu.Unlock()
	}
}

func (p *pinned) dropLocked() {
	if p.released {
		return
	}
	p.released = true
	p.conn.Close()
	p.state = pinState{}
	p.owed = nil
	p.show()
	if p.inside {
		p.inside = false
		p.s.guard.wmu.Unlock()
	}
}
