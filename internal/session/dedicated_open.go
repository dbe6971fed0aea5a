package session

import (
	"context"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/upstream"
)

// openDedicated gives the session a connection of its own.
func (s *Session) openDedicated() (*dedicated, error) {
	if s.srv.o.Cluster != nil {
		return s.openDedicatedForSlot(noSlot)
	}
	return s.openDedicatedOn(s.srv.o.Node)
}

// openDedicatedOn is openDedicated at a node.
func (s *Session) openDedicatedOn(n *upstream.Node) (*dedicated, error) {
	if err := s.refused(); err != nil {
		return nil, err
	}
	if r := s.restore.Load(); r != nil {
		return s.awaitRestored(r)
	}
	p, err := s.connect(s.srv.ctx, s.ident, n, nil, &s.view)
	if err == nil {
		s.dedicated = p
	}
	return p, err
}

// connect makes a connection for this session alone at a node, which is one of the cluster's unless that is nil. It is the
// session's own only if it shows itself in the session's view.
func (s *Session) connect(ctx context.Context, id upstream.Identity, n *upstream.Node, of *cluster.Node, v *dedicatedView) (*dedicated, error) {
	p := &dedicated{s: s, to: s.guard.Passage(), kept: s.guard.PendingReplies(), view: v, held: true, node: of, slots: dedicatedSlots{watched: noSlot},
		state: dedicatedState{proto: id.Proto, db: id.DB, kept: restorable{wanted: of == nil}}}
	p.changed.L = &p.mu
	p.mu.Lock() // no reply is looked at before conn is there
	conn, err := n.Dedicate(ctx, id, p)
	if p.conn = conn; err == nil {
		p.show()
	}
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if name := s.clientName(); name != conn.Name {
		p.tell("CLIENT", "SETNAME", name)
		conn.Name = name
	}
	return p, nil
}
