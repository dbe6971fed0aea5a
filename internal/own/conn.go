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

// dial makes a connection for this client alone at a node, which is one of the cluster's unless that is nil. The client's own connection is
// the one with the client's View as v.
func (o *Connections) dial(ctx context.Context, id upstream.Identity, n *upstream.Node, of *cluster.Node, v *dedicated.View) (*conn, error) {
	p := &conn{o: o, slots: slots{watched: backend.NoSlot}}
	p.Conn = dedicated.New(dedicated.Config{Host: p, Client: o.client, Context: o.Context, Timeout: o.Timeout, View: v, Node: of})
	if err := p.Connect(ctx, id, n, o.host.Name()); err != nil {
		return nil, err
	}
	return p, nil
}

// end ends the connection, because the client has gone. A client that half closes and does not read must not keep its locks by that.
func (p *conn) end() {
	o := p.o
	p.forgetQueued()
	defer time.AfterFunc(dedicated.LastReplies, func() { o.client.CloseNow() }).Stop()
	p.Hold() // else another client might have the connection, whose command would be unblocked
	now := p.Status()
	blocked := now.Blocked
	if blocked && now.Pending == 1 && o.host.Holds() && p.unblock() {
		blocked = false
	}
	if how, _ := o.client.Ending(); how == downstream.Gone && !blocked {
		p.awaitLast()
	}
	if p.Close() {
		o.host.Doubt()
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
	} else if held.Doubt {
		p.o.host.Doubt()
	}
}

// drop closes the connection with all its state; no reply is pending there. If the client has a part of a message, the
// rest comes first.
func (p *conn) drop() {
	ctx := p.o.clientContext()
	p.Drop(ctx)
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

// The connection asks this of its client: see dedicated.Host.

var _ dedicated.Host = (*conn)(nil)

// Silent implements dedicated.Host.
func (p *conn) Silent() bool { return p.o.host.Silent() }

// WriteReplies implements dedicated.Host.
func (p *conn) WriteReplies() { p.o.host.WriteReplies() }

// Watch implements dedicated.Host.
func (p *conn) Watch(run func(context.Context)) { p.o.host.Watch(run) }

// NotSent implements dedicated.Host.
func (p *conn) NotSent(e *dedicated.Reply) { p.o.notSent(e) }

// Shutting implements dedicated.Host.
func (p *conn) Shutting(more int) { p.o.host.Shutting(more) }

// RightsChanged implements dedicated.Host.
func (p *conn) RightsChanged(last bool) {
	if !p.rights.Any {
		return
	}
	p.o.host.RightsChanged(p.rights)
	if last {
		p.rights = backend.RightsChange{}
	}
}

// Timed implements dedicated.Host.
func (p *conn) Timed(c *commandtable.Command, call string, took time.Duration) {
	p.o.host.Timed(c, call, took)
}

// Adopt implements dedicated.Host.
func (p *conn) Adopt(pauses time.Duration, settings []dedicated.Setting) {
	p.o.host.Set(pauses, settings)
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
	p.o.path.left(p.Node)
}

// Loss implements dedicated.Host.
func (p *conn) Loss(err error) (closes bool, line string) {
	return p.o.host.Closes(err), backend.ErrorLine(err)
}

// Lost implements dedicated.Host.
func (p *conn) Lost(err error, closes bool) {
	if closes {
		p.o.client.Cut(downstream.Left, backend.WhyLost(err))
	}
	p.o.host.LearnAgain()
}
