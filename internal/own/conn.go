package own

import (
	"context"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/internal/fenced"
	"github.com/lockproxy/lockproxy/upstream"
)

// conn is a client's own connection, and that connection's dedicated.Host.
type conn struct {
	*dedicated.Conn
	o     *Connections
	slots slots // of a cluster

	// Guarded by Conn.Locked.
	targets []*Connections       // the clients whose connections it redirects invalidations to
	rights  backend.RightsChange // that commands sent here may cause, in a transaction perhaps
}

// Settled is that of dedicated.Conn; on no connection no reply is pending.
func (p *conn) Settled() bool { return p == nil || p.Conn.Settled() }

// InTransaction is that of dedicated.Conn; without a connection the client is in none.
func (p *conn) InTransaction() bool { return p != nil && p.Conn.Status().Multi }

// dial makes a connection for this client alone at a node, which is one of the cluster's unless that is nil. The
// client's own connection is the one with the client's View as v.
func (o *Connections) dial(ctx context.Context, id upstream.Identity, n *upstream.Node, of *cluster.Node, v *dedicated.View) (*conn, error) {
	p := &conn{o: o, slots: slots{watched: backend.NoSlot}}
	p.Conn = dedicated.New(dedicated.Config{Host: p, Client: o.client, Timeout: o.Timeout, View: v, Node: of})
	if err := p.Connect(ctx, id, n, o.client.Name()); err != nil {
		return nil, err
	}
	return p, nil
}

// end ends the connection, because the client has gone. A client that half closes and does not read must not keep its
// locks by that.
func (p *conn) end() {
	o := p.o
	p.forgetQueued()
	defer time.AfterFunc(dedicated.LastReplies, func() { o.client.End.CloseNow() }).Stop()
	p.Hold() // else another client might have the connection, whose command would be unblocked
	now := p.Status()
	blocked := now.Blocked
	if blocked && now.Pending == 1 && o.client.Held() > 0 && p.unblock() {
		blocked = false
	}
	if how, _ := o.client.End.Reason(); how == downstream.Gone && !blocked {
		p.awaitLast()
	}
	if p.Close() {
		o.client.LeaveToExpire()
	}
}

// awaitLast waits for the pending replies of a client that has gone.
func (p *conn) awaitLast() {
	ctx, cancel := context.WithTimeout(p.o.Context, dedicated.LastReplies)
	p.Await(ctx)
	cancel()
}

// endAside ends the use of a connection beside the client's own.
func (p *conn) endAside() {
	p.Release()
	if held := p.Hold(); !held.Released {
		p.end()
	} else if held.Unknown {
		p.o.client.LeaveToExpire()
	}
}

// drop closes the connection with all its state; no reply is pending there. If the client has a part of a message, the
// rest comes first.
func (p *conn) drop() {
	p.Drop(p.o.client.Context())
}

// unblock ends the wait of the command there, as the service account, and says whether its reply has come.
func (p *conn) unblock() bool {
	if p.RedisID() == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(p.o.Context, dedicated.LastReplies)
	defer cancel()
	at := p.o.Backend.Node()
	if p.Node != nil {
		at = p.Node.Upstream()
	}
	_, err := backend.Ask(ctx, at, p.o.AsService(), "CLIENT", "UNBLOCK", strconv.FormatInt(p.RedisID(), 10))
	return err == nil && p.Await(ctx)
}

// What becomes of the connection: see dedicated.Host, and fenced.Host.

var (
	_ dedicated.Host = (*conn)(nil)
	_ fenced.Host    = (*conn)(nil)
)

// NotSent implements dedicated.Host.
func (p *conn) NotSent(e *dedicated.Reply) {
	o := p.o
	o.current() // notes what was lost
	if o.lost.loss != lostTransaction {
		o.notBegun(e.Kind, &upstream.NotSentError{Cause: dedicated.ErrGone})
		return
	}
	o.answerLost(nil, e.Kind, e.Args)
}

// RightsChanged implements dedicated.Host.
func (p *conn) RightsChanged(last bool) {
	if !p.rights.Any {
		return
	}
	p.o.Common.RightsChanged(p.rights)
	if last {
		p.rights = backend.RightsChange{}
	}
}

// Idle implements dedicated.Host: of targets it keeps only the client to which invalidations go.
func (p *conn) Idle(redirected int64) {
	if len(p.targets) > 0 {
		p.dropTargets(redirected)
	}
}

// Left implements dedicated.Host.
func (p *conn) Left() {
	p.dropTargets(0)
	if p.Node != nil {
		p.o.nodes.Release(p.Node)
	}
}

// Sending implements fenced.Host.
func (p *conn) Sending(c *commandtable.Command, args [][]byte) { p.note(c, args) }

// Abandon implements fenced.Host.
func (p *conn) Abandon(hangUp bool, why string) {
	if p.o.conn == p {
		p.o.drop()
	} else {
		p.drop()
	}
	if hangUp {
		p.o.client.End.HangUp(downstream.Left, why)
	}
}
