package session

import (
	"maps"
	"time"

	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// about returns what clients are told of this proxy.
func (s *Server) about() *commands.ProxyFacts {
	_, most := s.o.Budget.Used()
	return &commands.ProxyFacts{
		Version: s.o.Version, Announce: s.o.Announce, Embedded: s.o.Embedded, Node: s.o.Present,
		Uptime: time.Since(s.start), MaxConnections: most, Upstream: s.up.backend.Describe, Locks: s.o.Locks,
		Figures: s.figures, Events: s.o.Events,
	}
}

// Figures say how the figures of this proxy are read.
func (s *Server) Figures() telemetry.Readings { return s.figures }

func (s *Server) readings() telemetry.Readings {
	r := telemetry.Readings{
		telemetry.Clients:             telemetry.Number(s.clients.n.Load),
		telemetry.UpstreamConnections: telemetry.Number(func() int { n, _ := s.o.Budget.Used(); return n }),
	}
	if s.o.Locks != nil {
		maps.Copy(r, s.o.Locks.Figures())
	}
	return r
}
