package session

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/retry"
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

// protection is what the log says of protected mode: clients from other machines are let in only where Redis asks them
// for a password. See login.
type protection struct {
	outside atomic.Bool // a listener is there that other machines may reach
	said    atomic.Bool // the log says that Redis asks for no password
}

// refuseRemote returns the error for a client from another machine that connects; "": it is let in. Until Redis has
// told whether it asks for a password the client is let in, and its first command waits for that.
func (s *Server) refuseRemote() string {
	if _, do := remote.on(needChanged, s.access.needs.now()); s.o.Protected && do == deny {
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

// sayProtection logs what it means that Redis asks for no password, if other machines can connect.
func (s *Server) sayProtection() {
	p := &s.access.protection
	switch n := s.access.needs.now(); {
	case n == aPassword:
		p.said.Store(false)
	case n == unknown, !p.outside.Load(), !p.said.CompareAndSwap(false, true):
	case s.o.Protected:
		s.log.Warn("protected mode: Redis asks for no password, so clients from other machines are refused. Set a password in Redis, " +
			"or --protected-mode no")
	default:
		s.log.Warn("Redis asks for no password, and --protected-mode is no: whoever can connect is served")
	}
}

// awaitNeed waits until it is known whether Redis asks for a password, since otherwise the first clients after the start
// would be served before that is known, and has it be known anew.
func (s *Server) awaitNeed() {
	if !retry.Sleep(s.ctx, protectionTime, s.access.needs.known) {
		s.freshNeed()
	}
}
