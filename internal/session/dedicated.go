package session

import (
	"strings"
	"sync/atomic"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// own is what the session has of a connection upstream to itself, and what becomes of that when it is lost.
type own struct {
	dedicated *dedicatedConn             // nil: there is none
	view      dedicated.View             // of it
	request   atomic.Pointer[chan int64] // somebody wants it to have one
	lostState lostState                  // by one before
	restore   atomic.Pointer[restore]    // of what it had; nil: that was not lost
}

// dedicatedConn is a connection of a session's own: its host.
type dedicatedConn struct {
	*dedicated.Conn
	s     *Session
	slots dedicatedSlots // of a cluster

	// Guarded by Conn.Locked.
	targets []*Session   // whose connections it has named for invalidations
	rights  rightsChange // that commands sent here may bring, in a transaction perhaps
}

// currentDedicated is the session's own connection if it still has one. It is then kept until release.
func (s *Session) currentDedicated() *dedicatedConn {
	p := s.own.dedicated
	if p == nil {
		return s.takeRestored()
	}
	held := p.Hold()
	if held.DB != s.ident.DB { // SELECT within a transaction
		id := s.ident
		id.DB = held.DB
		admitted := s.access.admitted
		s.identity(id)
		s.access.admitted = admitted
	}
	if !held.Released {
		return p
	}
	s.own.dedicated = nil
	if l := s.locks.engine.Load(); l != nil && held.Doubt {
		l.Doubt()
	}
	if held.Lost != nil {
		p.forgetQueued()
		s.addLostState(*held.Lost)
	}
	return s.takeRestored()
}

// release says that the session's own connection is not about to be used: it may be given back.
func (s *Session) release() {
	if p := s.own.dedicated; p != nil {
		p.Release()
	}
}

// runDedicated has a command run for a session that has a connection of its own, or needs one for it.
func (s *Session) runDedicated(p *dedicatedConn, cmd redcon.Command, c *commandtable.Command, answer answer) {
	defer s.release()
	s.forward()
	if s.guard.Over() {
		return
	}
	if p == nil {
		var err error
		if p, err = s.openDedicated(); backend.TooMany(err) && answer == nil && c != nil && c.ReadOnly && c.Conn == commandtable.ConnNone {
			s.enqueue(cmd.Raw, cmd.Args, c) // only writes are paused
			return
		} else if err != nil {
			s.dedicatedFailed(c, err)
			return
		}
	}
	if c == nil && answer != nil {
		if c, answer = s.resolve(cmd.Args); c == nil {
			p.Taint() // whatever it is, nobody else gets this connection
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

// notBegun is fail for a command of that kind, which was not run. What follows MULTI or WATCH would do harm without, unless a
// password lacks: then Redis refuses that, too.
func (s *Session) notBegun(k commandtable.ConnKind, err error) {
	switch {
	case backend.LogIn(err), s.closesFor(err):
	case k == commandtable.ConnMulti:
		s.addLostState(dedicated.Lost{Multi: true, Cause: err})
		s.ok()
		return
	case k == commandtable.ConnWatch:
		s.addLostState(dedicated.Lost{Watch: true, Cause: err})
	}
	s.fail(err)
}

// send relays one command.
func (s *Session) send(p *dedicatedConn, cmd redcon.Command, c *commandtable.Command) {
	e := &dedicated.Reply{Cmd: c}
	if c != nil {
		e.Kind = c.Conn
		switch e.Kind {
		case commandtable.ConnBlock, commandtable.ConnWait:
			e.Wait = dedicated.Wait{Blocks: true, For: waitsFor(c, cmd.Args), Shuts: c.Name == "shutdown"}
		case commandtable.ConnSubscribe, commandtable.ConnWatch, commandtable.ConnExec, commandtable.ConnDiscard:
			e.Args = len(cmd.Args) - 1
		case commandtable.ConnTracking:
			cmd.Raw = s.tracking(p, e, cmd)
		}
	}
	if e.Kind == commandtable.ConnWait && p.Settled() && p.free() {
		// So that the connection's last write, as Redis sees it, is none before now. Who may wait may do this.
		nothing := []string{c.Name, "0", "0", "0"}
		p.Tell(nothing[:3+len(c.Name)/len("waitaof")]...)
	}
	if c != nil && c.Name == "client|caching" && len(cmd.Args) == 3 {
		e.Effect.Caching = string(cmd.Args[2])
	}
	telemetry.Commands.Add(1)
	if c != nil && c.Rights {
		p.Locked(func(bool) { p.rights.note(c, cmd.Args) })
	}
	if c != nil && c.Script == commandtable.FlushesScripts {
		s.srv.scripts.Clear() // whatever comes of it
	}
	p.Send(e, cmd.Raw)
}

// answerDedicated answers here what is not Redis' to answer, once all replies before are in; within a transaction, and
// for subscribers in RESP2, the rules of these hold.
func (s *Session) answerDedicated(p *dedicatedConn, cmd redcon.Command, c *commandtable.Command, answer answer) {
	if !p.Settled() {
		return
	}
	s.release()
	multi, mute := false, false
	if p = s.currentDedicated(); p != nil {
		now := p.Status()
		multi, mute = now.Multi, now.Mute
	}
	switch {
	case c.Always: // QUIT, RESET
		answer(s, cmd.Args)
	case multi && c.Barred:
		p.Send(&dedicated.Reply{Instead: notInMulti}, marking)
	case multi:
		if strings.HasPrefix(c.Name, "client|") {
			p.Taint() // what it sets on the connection is this client's
		}
		effect := effectOf(c, cmd.Args)
		p.Send(&dedicated.Reply{Cmd: c, Effect: effect}, s.queuedAs(c, cmd.Raw, effect))
	case mute && c.Subs != nil: // a subcommand that is none
		p.Send(&dedicated.Reply{Cmd: c}, cmd.Raw)
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
func effectOf(c *commandtable.Command, args [][]byte) dedicated.Effect {
	switch {
	case c.Name == "select" && len(args) == 2:
		n, ok := commands.Integer(args[1])
		return dedicated.Effect{Selects: ok, DB: int(n)}
	case c.Name == "client|pause":
		return dedicated.Effect{Pauses: writePause(args)}
	}
	return dedicated.Effect{Setting: settingIn(c, args)}
}

// free says that commands are run at once: there is no transaction, and no restriction.
func (p *dedicatedConn) free() bool {
	now := p.Status()
	return !now.Multi && !now.Mute
}

// discard ends the transaction at p's node, if it has not ended it already.
func (s *Session) discard(p *dedicatedConn) {
	p.slots.watched, p.slots.ask = noSlot, false
	if p.InTransaction() {
		p.Own(&dedicated.Reply{Kind: commandtable.ConnDiscard}, discardCommand)
		p.Settled()
	}
}
