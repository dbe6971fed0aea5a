package own

import (
	"context"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/downstream"
	"github.com/lockproxy/lockproxy/upstream"
)

// conn is a client's own connection.
type conn struct {
	*dedicated.Conn
	o       *Connections
	slots   slots          // of a cluster
	targets []*Connections // the clients whose connections it redirects invalidations to
	gone    bool           // it is known that it is not the client's any more

	rights backend.RightsChange // that commands sent here may cause, in a transaction perhaps
}

// Wait is that of dedicated.Conn; on no connection no reply is pending.
func (p *conn) Wait() bool { return p == nil || p.Conn.Wait() }

// InTransaction is that of dedicated.Conn; without a connection the client is in none.
func (p *conn) InTransaction() bool { return p != nil && p.Conn.Status().Multi }

// dial makes a connection for this client alone at a node, which is one of the cluster's unless that is nil. The
// client's own connection is the one with the client's View as v.
func (o *Connections) dial(ctx context.Context, id upstream.Identity, n *upstream.Node, of *cluster.Node, v *dedicated.View) (*conn, error) {
	p := &conn{o: o, slots: slots{watched: backend.NoSlot}}
	p.Conn = dedicated.New(dedicated.Config{Client: o.client, View: v, Node: of, RightsChanged: p.rightsChanged, Timeout: o.Timeout})
	if err := p.Connect(ctx, id, n, o.client.Name()); err != nil {
		return nil, err
	}
	return p, nil
}

// end ends the connection, because the client has gone. A client that half closes and does not read must not keep its
// locks by that.
func (p *conn) end() {
	o := p.o
	defer time.AfterFunc(dedicated.LastReplies, func() { o.client.End.CloseNow() }).Stop()
	blocked := p.Status().Blocked && (o.client.Held() == 0 || !p.unblock())
	if how, _ := o.client.End.Reason(); how == downstream.Gone && !blocked {
		p.Await(dedicated.LastReplies)
	}
	p.Close()
	p.left()
}

// giveBack gives the connection back, unless Redis keeps something for it.
func (p *conn) giveBack() bool {
	if p.GiveBack() {
		p.left()
		return true
	}
	if len(p.targets) > 0 {
		if now := p.Status(); !now.Multi {
			p.dropTargets(now.Redirect.Client)
		}
	}
	return false
}

// endAside ends the use of a connection beside the client's own.
func (p *conn) endAside() {
	if !p.giveBack() {
		p.end()
	}
}

// drop closes the connection with all its state; no reply is pending there.
func (p *conn) drop() {
	p.Close()
	p.left()
}

// left notes that the connection is not the client's any more.
func (p *conn) left() {
	if p.gone {
		return
	}
	p.gone = true
	p.forgetQueued()
	p.dropTargets(0)
	if p.Node != nil {
		p.o.nodes.Release(p.Node)
	}
	if p.Unknown() {
		p.o.client.LeaveToExpire()
	}
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
	return err == nil && p.Await(dedicated.LastReplies)
}

// rightsChanged tells of a change of rights: see dedicated.Config.
func (p *conn) rightsChanged(last bool) {
	if !p.rights.Any {
		return
	}
	p.o.Common.RightsChanged(p.rights)
	if last {
		p.rights = backend.RightsChange{}
	}
}

// notSent answers a command that came just after the connection was lost.
func (p *conn) notSent(e *dedicated.Reply) {
	o := p.o
	o.current() // notes what was lost
	if o.lost.loss != lostTransaction {
		o.notBegun(e.Kind, &upstream.NotSentError{Cause: dedicated.ErrGone})
		return
	}
	o.answerLost(nil, e.Kind, e.Args)
}

// Send is that of dedicated.Conn, and answers a command that is not sent because the connection was lost.
func (p *conn) Send(e *dedicated.Reply, raw []byte) {
	if !p.Conn.Send(e, raw) && e.Got == nil {
		p.notSent(e)
	}
}
