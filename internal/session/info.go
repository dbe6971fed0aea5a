package session

import (
	"time"

	"github.com/lockproxy/lockproxy/commands"
)

// Proxy implements commands.Identity.
func (s *Session) Proxy() *commands.ProxyFacts { return s.srv.about() }

// about returns what clients are told of this proxy.
func (s *Server) about() *commands.ProxyFacts {
	connections, most := s.o.Budget.Used()
	return &commands.ProxyFacts{
		Version: s.o.Version, Embedded: s.o.Embedded, Node: s.o.Present, Uptime: time.Since(s.start), Clients: s.clients.n.Load(),
		Connections: connections, MaxConnections: most, Upstream: s.up.backend.Describe, Locks: s.o.Locks, Pause: s.pauses.facts(),
	}
}

// Address implements commands.Connection: by default it is where this client has found this proxy.
func (s *Session) Address() string {
	if addr := s.srv.o.Announce; addr != "" {
		return addr
	}
	return s.client.LocalName()
}

// ReadReplicas implements commands.Settings.
func (s *Session) ReadReplicas(may bool) bool {
	if s.srv.o.ReadFrom == ReadMaster {
		return false
	}
	s.replicas = may
	return true
}
