package upstream

import (
	"context"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// Probe asks a Redis again and again whether it answers. Its connection never authenticates, and serves nobody else: whatever Redis says
// there is an answer.
type Probe struct {
	node *Node
	conn *ownConn // nil: none
}

// Probe returns a Probe of the node. Close gives its connection back.
func (n *Node) Probe() *Probe { return &Probe{node: n} }

// Ask returns nil once Redis has answered. It waits until ctx ends, or the connection is lost; a new one is given as long as any other.
func (p *Probe) Ask(ctx context.Context) error {
	if p.conn != nil {
		if p.ping(ctx) == nil {
			return nil
		}
		p.Close()
	}
	conn, term, err := dialTarget(ctx, p.node.target, p.node.opts.DialTimeout)
	if err != nil {
		return err
	}
	p.conn = newOwn(conn, term)
	if err = p.ping(ctx); err != nil {
		p.Close()
	}
	return err
}

func (p *Probe) ping(ctx context.Context) error {
	if err := ask(ctx, p.conn, resp.AppendCommand(nil, "PING"), 1); Refused(err) == nil {
		return err
	}
	return nil
}

// Close closes the connection.
func (p *Probe) Close() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}
