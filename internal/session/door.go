package session

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

const noAuth = "NOAUTH Authentication required."

// doorPeriod is for how long Redis' word is believed that it asks for a password.
const doorPeriod = 400 * time.Millisecond

// door is how clients are refused that have not authenticated, while Redis asks for a password: here, since Redis closes a connection
// on which it holds for such clients more than a little (1 KB), and theirs is shared. Redis is asked once for all of them.
type door struct {
	turn  sync.Mutex             // who has it asks Redis
	until atomic.Int64           // unix nanoseconds until which Redis' last word is believed
	hello atomic.Pointer[string] // what this Redis says to HELLO without AUTH; nil: not known yet
}

// lockedOut says that this client must authenticate before it may run commands, as far as Redis has said within doorPeriod.
func (s *Session) lockedOut() bool {
	return s.ident.User == "" && s.ident.Password == "" && s.srv.access.mustAuth.Load() && s.srv.doorClosed()
}

// doorClosed is Redis' word on clients that have not authenticated. While somebody asks, and when no answer is to be had, the last
// one stands.
func (s *Server) doorClosed() bool {
	if time.Now().UnixNano() >= s.access.door.until.Load() && s.access.door.turn.TryLock() {
		if err := s.learnAuth(); err == nil {
			s.access.door.until.Store(time.Now().Add(doorPeriod).UnixNano())
		}
		s.access.door.turn.Unlock()
	}
	return s.access.mustAuth.Load()
}

// refusalOf is what Redis 7 says to a command of a client that must authenticate first: it looks for the command, and at the number
// of its words, before it asks who the client is.
func (s *Server) refusalOf(args [][]byte) string {
	t := s.facts.table.Load() // of now: what the session has looked up may be of before Redis told its commands
	c, _ := t.find(args)
	switch {
	case c != nil && !commandtable.ArityFits(c.Arity, len(args)):
		return wrongArity(c.Name)
	case c != nil || !t.Learned():
		return noAuth
	}
	var rest []byte
	for _, word := range args[1:] {
		if len(rest) >= unknownShown {
			break
		}
		rest = append(rest, '\'')
		rest = append(append(rest, shown(word, unknownShown+1-len(rest))...), "' "...)
	}
	return "ERR unknown command '" + string(shown(args[0], unknownShown)) + "', with args beginning with: " + string(rest)
}

// unknownShown is how much of an unknown command Redis shows, of its name and of its other words.
const unknownShown = 128

// shown is as much of a word as Redis shows: up to n bytes, and up to a zero.
func shown(word []byte, n int) []byte {
	word, _, _ = bytes.Cut(word, []byte{0})
	return word[:min(len(word), n)]
}

// refuseRun answers the run as Redis answers clients that must authenticate first.
func (s *Session) refuseRun() {
	for range s.batch.Run() {
		s.error(noAuth)
	}
}

// noAuthHello is what Redis answers HELLO without AUTH from a client that must authenticate, in the words of its version.
func (s *Server) noAuthHello() string {
	if line := s.access.door.hello.Load(); line != nil {
		return *line
	}
	reply, err := s.askAs(s.fresh(), "HELLO", "3")
	line, refused := resp.ErrorLine(reply)
	if err != nil || !refused {
		return noAuth
	}
	s.access.door.hello.Store(&line)
	return line
}

const (
	deniedLine = "DENIED lockproxy is running in protected mode because protected mode is enabled and Redis asks no password of the " +
		"default user. In this mode connections are only accepted from the loopback interface and from unix sockets. If you want to connect " +
		"from external computers to lockproxy you may adopt one of the following solutions: 1) Set up an authentication password for the " +
		"default user of Redis, lockproxy notices it within seconds. 2) Restart lockproxy with the '--protected-mode no' option, however " +
		"MAKE SURE that it is not publicly accessible from internet if you do so. NOTE: You only need to do one of the above things in " +
		"order for lockproxy to start accepting connections from the outside."
	deniedYet = "DENIED lockproxy is running in protected mode, and could not ask Redis yet whether it wants a password. Until it can, " +
		"connections are only accepted from the loopback interface and from unix sockets. Try again later."
)

// protectionTime is how long the first command of a client from another machine waits until it is known whether Redis asks for a password.
const protectionTime = 2 * time.Second

// protection is what protected mode must know: clients from other machines are let in only where Redis asks for a password.
type protection struct {
	known   chan struct{} // closed when Redis has told for the first time whether it asks for a password
	once    sync.Once
	outside atomic.Bool // a listener is there that other machines may reach
	said    atomic.Bool // the log says that Redis asks for no password
}

// isKnown says whether Redis has told yet whether it asks for a password.
func (p *protection) isKnown() bool {
	select {
	case <-p.known:
		return true
	default:
		return false
	}
}

// strangers is what a client from another machine is told when it connects; "": it is let in. Where Redis has not told yet
// whether it asks for a password the client is let in, and its first command waits for that: see stays.
func (s *Server) strangers() string {
	if !s.o.Protected || !s.access.protection.isKnown() || s.access.mustAuth.Load() {
		return ""
	}
	return string(resp.AppendError(nil, deniedLine))
}

// listens notes that clients come by a listener at addr.
func (s *Server) listens(addr net.Addr, e downstream.Entry) {
	if addr.Network() == "tcp" && (e.ProxyHeader || !downstream.IsLocal(addr)) {
		s.access.protection.outside.Store(true)
		s.sayProtection()
	}
}

// protectionLearned is told whether Redis asks for a password. changed says that this is news.
func (s *Server) protectionLearned(asked, changed bool) {
	s.access.protection.once.Do(func() {
		changed = true
		close(s.access.protection.known)
	})
	if !changed {
		return
	}
	if asked {
		s.access.protection.said.Store(false)
	}
	s.sayProtection()
	for _, c := range s.snapshot() { // those that must authenticate now have a time for it, and those that may not stay are closed
		c.guard.WakeToAttend()
	}
}

// sayProtection says in the log what it means that Redis asks for no password, where that concerns other machines.
func (s *Server) sayProtection() {
	p := &s.access.protection
	if !p.isKnown() || s.access.mustAuth.Load() || !p.outside.Load() || !p.said.CompareAndSwap(false, true) {
		return
	}
	if s.o.Protected {
		s.log.Warn("protected mode: Redis asks for no password, so clients from other machines are refused. Set a password in Redis, " +
			"or --protected-mode no")
		return
	}
	s.log.Warn("Redis asks for no password, and --protected-mode is no: whoever can connect is served")
}

// stays decides, before its first command, whether a client from another machine may stay. It waits for Redis to tell whether
// it asks for a password, since otherwise the first clients after the start would be served before that is known.
func (s *Session) stays() bool {
	if !s.peer.remote {
		return true
	}
	timer := time.NewTimer(protectionTime)
	defer timer.Stop()
	select {
	case <-s.srv.access.protection.known:
	case <-timer.C:
		s.deny(deniedYet)
		return false
	case <-s.srv.ctx.Done():
		s.guard.HangUp(downstream.Left, "drained")
		return false
	}
	if s.peer.remote = false; s.srv.doorClosed() {
		return true
	}
	s.deny(deniedLine)
	return false
}

// refuseStranger closes a client from another machine that has sent no command yet, once it is known that it may not stay.
func (s *Session) refuseStranger() {
	if s.peer.remote && s.srv.access.protection.isKnown() && !s.srv.access.mustAuth.Load() {
		s.deny(deniedLine)
	}
}

func (s *Session) deny(line string) {
	s.guard.Write(resp.AppendError(nil, line)) // best effort
	s.replies.finish = true
	s.guard.HangUp(downstream.Left, "protected mode")
}

// MustAuthenticate says that Redis asks for a password, and that this client has neither told one nor was served before.
func (s *Session) MustAuthenticate() bool {
	return s.srv.access.mustAuth.Load() && s.access.admitted == 0 && s.ident.User == "" && s.ident.Password == ""
}
