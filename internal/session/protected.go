package session

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/proto/resp"
)

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

// protectionTime is how long the first command of a client from another machine waits until it is known whether Redis
// asks for a password.
const protectionTime = 2 * time.Second

// protection is what protected mode must know: clients from other machines are let in only where Redis asks for a
// password.
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

// refusesRemote says that clients from other machines are known not to be served.
func (s *Server) refusesRemote() bool {
	return s.o.Protected && s.access.protection.isKnown() && !s.access.mustAuth.Load()
}

// refuseRemote returns the error for a client from another machine that connects; "": it is let in. Until Redis has
// told whether it asks for a password the client is let in, and its first command waits for that: see mayStay.
func (s *Server) refuseRemote() string {
	if s.refusesRemote() {
		return string(resp.AppendError(nil, deniedLine))
	}
	return ""
}

// listens notes that there is a listener at addr.
func (s *Server) listens(addr net.Addr, e downstream.Entry) {
	if addr.Network() == "tcp" && (e.ProxyHeader || !downstream.IsLocal(addr)) {
		s.access.protection.outside.Store(true)
		s.sayProtection()
	}
}

// protectionLearned is called when Redis has told whether it asks for a password. changed says that the answer is
// another one than before.
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
	// Those that must authenticate get a deadline for it, and those that may not stay are closed.
	for _, c := range s.clients.snapshot() {
		c.client.Reader.Notify()
	}
}

// sayProtection logs what it means that Redis asks for no password, if other machines can connect.
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

// mayStay decides, before its first command, whether a client from another machine may stay. It waits for Redis to tell
// whether it asks for a password, since otherwise the first clients after the start would be served before that is
// known.
func (a *access) mayStay() bool {
	if !a.remote {
		return true
	}
	timer := time.NewTimer(protectionTime)
	defer timer.Stop()
	select {
	case <-a.srv.access.protection.known:
	case <-timer.C:
		a.deny(deniedYet)
		return false
	case <-a.srv.ctx.Done():
		a.client.End.HangUp(downstream.Left, "drained")
		return false
	}
	if a.remote = false; a.srv.asksPassword() {
		return true
	}
	a.deny(deniedLine)
	return false
}

// refuseRemote closes a client from another machine that has sent no command yet, once it is known that it may not
// stay.
func (a *access) refuseRemote() {
	if a.remote && a.srv.refusesRemote() {
		a.deny(deniedLine)
	}
}

func (a *access) deny(line string) {
	a.client.Write(resp.AppendError(nil, line)) // best effort
	a.client.Replies.Finish = true
	a.client.End.HangUp(downstream.Left, "protected mode")
}
