package session

import (
	"context"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/upstream"
)

// openDedicated gives the session a connection of its own.
func (s *Session) openDedicated() (*dedicatedConn, error) {
	if s.srv.o.Cluster != nil {
		return s.openDedicatedForSlot(noSlot)
	}
	return s.openDedicatedOn(s.srv.o.Node)
}

// openDedicatedOn is openDedicated at a node.
func (s *Session) openDedicatedOn(n *upstream.Node) (*dedicatedConn, error) {
	if err := s.refused(); err != nil {
		return nil, err
	}
	if r := s.own.restore.Load(); r != nil {
		return s.awaitRestored(r)
	}
	p, err := s.connect(s.srv.ctx, s.ident, n, nil, &s.own.view)
	if err == nil {
		s.own.dedicated = p
	}
	return p, err
}

// connect makes a connection for this session alone at a node, which is one of the cluster's unless that is nil. It is the
// session's own only if it shows itself in the session's view.
func (s *Session) connect(ctx context.Context, id upstream.Identity, n *upstream.Node, of *cluster.Node, v *dedicated.View) (*dedicatedConn, error) {
	p := &dedicatedConn{s: s, slots: dedicatedSlots{watched: noSlot}}
	p.Conn = dedicated.New(dedicated.Config{Host: p, Client: s.guard, Context: s.srv.ctx, Timeout: s.srv.o.UpstreamTimeout, View: v, Node: of})
	if err := p.Connect(ctx, id, n, s.clientName()); err != nil {
		return nil, err
	}
	return p, nil
}
