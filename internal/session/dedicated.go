package session

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/tidwall/redcon"

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
			e.Wait = dedicated.Wait{Blocks: true, For: c.WaitsFor(cmd.Args), Shuts: c.Name == "shutdown"}
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
		s.srv.up.common.Scripts.Clear() // whatever comes of it
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
		n, ok := resp.Integer(args[1])
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
	p.slots.watched, p.slots.ask = backend.NoSlot, false
	if p.InTransaction() {
		p.Own(&dedicated.Reply{Kind: commandtable.ConnDiscard}, discardCommand)
		p.Settled()
	}
}

// nobody is a client number that Redis never gives out: it then answers what it answers for one that does not exist.
const nobody = math.MaxInt64

// tracking notes in e what CLIENT TRACKING asks for, and returns the command as Redis is to get it: REDIRECT names a
// connection at Redis there, that of the client whom our own number names.
func (s *Session) tracking(p *dedicatedConn, e *dedicated.Reply, cmd redcon.Command) []byte {
	args := cmd.Args
	e.Effect.Tracks, e.Effect.On = true, len(args) > 2 && equalFold(args[2], "ON")
	if e.Effect.On {
		e.Effect.Call = string(cmd.Raw)
	}
	var sent [][]byte
	for i := 3; i < len(args); i++ {
		switch {
		case equalFold(args[i], "PREFIX"):
			i++
		case equalFold(args[i], "BCAST"):
			e.Effect.BCast = true
		case equalFold(args[i], "REDIRECT") && i+1 < len(args):
			i++
			id, ok := resp.Integer(args[i])
			if !ok {
				return cmd.Raw // Redis says so
			}
			to := dedicated.Redirect{Client: id, Redis: nobody}
			if at, found := s.connectionOf(p, id); found && at != 0 {
				to.Redis = at
			} else if found {
				e.Effect = dedicated.Effect{}
				e.Instead = "ERR client " + strconv.FormatInt(id, 10) + " has no connection of its own at Redis to redirect to: let it SUBSCRIBE __redis__:invalidate first"
				return marking
			}
			e.Effect.To = to
			if sent == nil {
				sent = append(sent, args...)
			}
			sent[i] = strconv.AppendInt(nil, to.Redis, 10)
		}
	}
	if sent == nil {
		return cmd.Raw
	}
	return resp.Command(sent)
}

// connectionOf finds the connection at Redis of a client that invalidations are to go to, 0 if it has none and gets none.
// It stays that client's until the redirection ends.
func (s *Session) connectionOf(p *dedicatedConn, id int64) (redisID int64, found bool) {
	if id == s.peer.id {
		return p.RedisID(), true // which it keeps while it is tracking
	}
	c := s.srv.session(id)
	if c == nil || c.guard.Over() {
		return 0, false
	}
	c.own.view.Targets.Add(1) // first: giveBackIfUnused looks once more when it has taken the number away
	if redisID = c.own.view.RedisID.Load(); redisID == 0 {
		redisID = c.requestDedicated(s.srv.ctx)
	}
	p.Locked(func(released bool) {
		if redisID == 0 || released {
			c.noTarget()
		} else {
			p.targets = append(p.targets, c)
		}
	})
	return redisID, true
}

// noTarget is the end of one redirection to the client.
func (s *Session) noTarget() {
	if s.own.view.Targets.Add(-1) == 0 {
		s.guard.WakeToAttend()
	}
}

// dropTargets lets the clients whose connections it has named give them back, but for the one with that number; mu is held.
func (p *dedicatedConn) dropTargets(but int64) {
	kept := false // once: it may have been named several times
	p.targets = slices.DeleteFunc(p.targets, func(c *Session) bool {
		if c.peer.id == but && !kept {
			kept = true
			return false
		}
		c.noTarget()
		return true
	})
}

// Idle keeps only the client that the connection's invalidations go to.
func (p *dedicatedConn) Idle(redirected int64) {
	if len(p.targets) > 0 {
		p.dropTargets(redirected)
	}
}

// askOwn asks Redis about the session's own connection; without one any will do, since nothing is set on it.
func (s *Session) askOwn(args [][]byte) (answer []byte, to dedicated.Redirect, err error) {
	p := s.currentDedicated()
	if p == nil {
		answer, err = s.askAt(backend.Place{}, args...)
		return answer, to, err
	}
	answer, err = p.Ask(&dedicated.Reply{}, backend.QuestionTime, string(args[0]), string(args[1]))
	return answer, p.Status().Redirect, err
}

// clientGetRedir is CLIENT GETREDIR, in our numbers.
func (s *Session) clientGetRedir(args [][]byte) {
	answer, to, err := s.askOwn(args)
	if r, ok := resp.ParseReply(answer); err == nil && ok && isTarget(to, r) {
		s.batch.Out = resp.AppendInt(s.batch.Out, to.Client)
		return
	}
	s.relay(answer, err)
}

// clientTrackingInfo is CLIENT TRACKINGINFO, in our numbers.
func (s *Session) clientTrackingInfo(args [][]byte) {
	answer, to, err := s.askOwn(args)
	r, ok := resp.ParseReply(answer)
	if err != nil || !ok || len(r.Elems) == 0 {
		s.relay(answer, err)
		return
	}
	out := resp.AppendMap(s.batch.Out, s.ident.Proto, len(r.Elems)/2)
	for i, e := range r.Elems {
		if i%2 == 1 && string(r.Elems[i-1].Text) == "redirect" && isTarget(to, e) {
			out = resp.AppendInt(out, to.Client)
			continue
		}
		out = append(out, e.Raw...)
	}
	s.batch.Out = out
}

// isTarget says whether r is the number at Redis of the client that was named.
func isTarget(to dedicated.Redirect, r resp.Reply) bool {
	return r.Kind == ':' && to.Redis != 0 && string(r.Text) == strconv.FormatInt(to.Redis, 10)
}
