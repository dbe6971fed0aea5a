package own

import (
	"context"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/subscription"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// slots is what is known of a connection's slots. Only the client's goroutine uses it.
type slots struct {
	watched int          // the slot of what is watched, or backend.NoSlot
	ask     bool         // the node is importing that slot: ASKING must come before MULTI
	tx      *transaction // the one that is queued
}

var asking = resp.AppendCommand(nil, "ASKING")

// connect makes a connection to any node.
func (u *clustered) connect() (*conn, error) { return u.connectSlot(backend.NoSlot, &u.View) }

// connectAt makes a connection to a node.
func (u *clustered) connectAt(ctx context.Context, n *cluster.Node, v *dedicated.View) (*conn, error) {
	return u.connectAs(ctx, u.client.Identity(), n, v)
}

// connectAs is connectAt as id, which the client need not be any more.
func (u *clustered) connectAs(ctx context.Context, id upstream.Identity, n *cluster.Node, v *dedicated.View) (*conn, error) {
	u.nodes.Acquire(n)
	p, err := u.dial(ctx, id, n.Upstream(), n, v)
	if err != nil {
		u.nodes.Release(n)
	}
	return p, err
}

// connectAny is connectAt to any node, but for those passed over, for as long as it is not in trouble.
func (u *clustered) connectAny(s *cluster.Snapshot, passed int, v *dedicated.View) (*conn, error) {
	n := s.Any(int(u.client.Number), passed)
	ctx, done := s.While(u.Context, n)
	defer done()
	return u.connectAt(ctx, n, v)
}

// connectSlot makes a connection to the node that has a slot; backend.NoSlot: to any. It tries for as long as commands are retried
// on the cluster.
func (u *clustered) connectSlot(slot int, v *dedicated.View) (*conn, error) {
	refused, passed := 0, 0 // masters that do not let this client's user in; those, and others that were not reached, of which any would do
	for until := time.Now().Add(u.nodes.RetryFor()); ; {
		snapshot, err := u.nodes.Snapshot(), error(&upstream.ReplyError{Line: "CLUSTERDOWN Hash slot not served"})
		var p *conn
		if slot == backend.NoSlot {
			p, err = u.connectAny(snapshot, passed, v)
		} else if n := snapshot.Owner(slot); n != nil {
			p, err = u.connectAt(u.Context, n, v)
		}
		if p != nil {
			return p, nil
		}
		passed++
		if client.PasswordRefused(err) && slot == backend.NoSlot && refused+1 < len(snapshot.Masters) {
			refused++
			continue
		}
		if time.Now().After(until) || u.client.End.Over() || u.Context.Err() != nil || client.NoFurther(err) {
			return nil, err
		}
		u.nodes.LookAgain(u.client)
	}
}

// masters has run use a connection to each master. It tries for as long as commands are retried on the cluster.
func (u *clustered) masters(id upstream.Identity, run func([]*conn) error) error {
	for until := time.Now().Add(u.nodes.RetryFor()); ; {
		all, err := u.connectAll(id, u.nodes.Snapshot().Masters)
		again := !client.NoFurther(err)
		if err == nil {
			err = run(all)
			refusal := upstream.Refused(err)
			again = refusal != nil && cluster.MasterOnly([]byte("-"+refusal.Line))
		}
		if err == nil || !again || time.Now().After(until) || u.client.End.Over() || u.Context.Err() != nil {
			return err
		}
		u.nodes.LookAgain(u.client)
	}
}

// connectAll makes a connection to each of the nodes, or else none.
func (u *clustered) connectAll(id upstream.Identity, nodes []*cluster.Node) (all []*conn, err error) {
	for _, n := range nodes {
		p, err := u.connectAs(u.Context, id, n, new(dedicated.View))
		if err != nil {
			closeAll(all)
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// at returns p, or if that is nil a new connection of the client's own to the node that has a slot. If it returns nil, the client
// has been given the error.
func (u *clustered) at(p *conn, slot int, c *commandtable.Command) *conn {
	if p != nil {
		return p
	}
	p, err := u.connectSlot(slot, &u.View)
	if err != nil {
		u.Failed(c, err)
		return nil
	}
	u.conn = p
	return p
}

// move replaces p with a connection to where reply, a redirect of p's node, says. If it returns nil, the client has been given the
// error.
func (u *clustered) move(p *conn, reply []byte, slot int, c *commandtable.Command) (to *conn, ask bool) {
	to, ask, err := u.redirected(p, reply, slot)
	if err != nil {
		u.Failed(c, err)
		return nil, false
	}
	return to, ask
}

// redirected gives p back, or closes it if Redis keeps state for it, and makes a connection to where reply, a redirect of p's node,
// says. ask: ASKING must be sent first.
func (u *clustered) redirected(p *conn, reply []byte, slot int) (to *conn, ask bool, err error) {
	u.letGo()
	n, ask, ok := u.nodes.Redirect(reply, slot, p.Node)
	if ok && n != nil {
		to, err = u.connectAt(u.Context, n, &u.View)
	}
	if to == nil {
		u.nodes.LookAgain(u.client)
		ask = false
		to, err = u.connectSlot(slot, &u.View)
	}
	if err == nil {
		u.conn = to
	}
	return to, ask, err
}

// letGo gives the client's own connection back, or closes it if Redis keeps state for it.
func (u *clustered) letGo() {
	u.release()
	if u.current() != nil {
		u.drop()
	}
}

// try sends a command, after ASKING if ask, and returns an error reply of Redis' in place of giving it to the client. over: the
// connection is lost, or the client has gone. Without either the client has its reply.
func (p *conn) try(e *dedicated.Reply, raw []byte, ask bool) (refusal []byte, over bool) {
	var got []byte
	if ask {
		p.Own(&dedicated.Reply{}, asking)
	}
	e.Refusal = &got
	p.Send(e, raw)
	if !p.Settled() || e.Lost != nil {
		return nil, true
	}
	return got, false
}

// subscribe runs a command of the SUBSCRIBE family.
func (u *clustered) subscribe(cmd redcon.Command, c *commandtable.Command) {
	if u.subscriptions == nil {
		u.subscriptions = subscription.New(subscription.Config{Common: u.Common.Common, Host: subscriber{u}, Client: u.client, Nodes: u.nodes, View: &u.View,
			Spread: int(u.client.Number), Listeners: &u.Listeners})
	}
	forwarded()
	u.subscriptions.Run(cmd, c)
}

// subscriber gives a client's subscriptions their connections: see subscription.Host.
type subscriber struct{ u *clustered }

var _ subscription.Host = subscriber{}

// Connect implements subscription.Host.
func (h subscriber) Connect(ctx context.Context, id upstream.Identity, at *cluster.Node) (subscription.Link, error) {
	p, err := h.u.connectAs(ctx, id, at, new(dedicated.View))
	if err != nil {
		return subscription.Link{}, err
	}
	return subscription.Link{Conn: p.Conn, Relay: func(cmd redcon.Command, c *commandtable.Command) { h.u.send(p, cmd, c) }, End: p.drop}, nil
}

// Hello implements subscription.Host.
func (h subscriber) Hello(c *dedicated.Conn, id upstream.Identity) error { return h.u.hello(c, id) }
