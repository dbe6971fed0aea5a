package session

import (
	"time"

	"github.com/lockproxy/lockproxy/commands"
)

// about returns what clients are told of this proxy.
func (s *Server) about() *commands.ProxyFacts {
	connections, most := s.o.Budget.Used()
	return &commands.ProxyFacts{
		Version: s.o.Version, Announce: s.o.Announce, Embedded: s.o.Embedded, Node: s.o.Present,
		Uptime: time.Since(s.start), Clients: s.clients.n.Load(),
		Connections: connections, MaxConnections: most, Upstream: s.up.backend.Describe, Locks: s.o.Locks,
		Pause: s.pauses.facts(),
	}
}

// ReadReplicas implements commands.Session.
func (s *Session) ReadReplicas(may bool) bool {
	if s.srv.o.ReadFrom == ReadMaster {
		return false
	}
	s.replicas = may
	return true
}
