package own

import (
	"errors"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/upstream"
)

// single is how a client has a connection of its own to one Redis. While it has one all its commands go there.
type single struct{ *Connections }

func (u *single) run(p *conn, cmd redcon.Command, c *commandtable.Command, here bool) (taken bool) {
	if p == nil && (c == nil || !c.Conn.Starts()) && !u.restore.Load().mutes(c) && (here || !u.host.WritesPaused()) {
		return false
	}
	u.host.Forward()
	if u.client.Over() {
		return true
	}
	if p == nil {
		var err error
		if p, err = u.open(); backend.TooMany(err) && !here && c != nil && c.ReadOnly && c.Conn == commandtable.ConnNone {
			return false // only writes are paused
		} else if err != nil {
			u.failed(c, err)
			return true
		}
	}
	if c == nil && u.host.Routes().Table.Learned() {
		p.Taint() // whatever it is, nobody else gets this connection
	}
	if !here || c.Conn != commandtable.ConnNone {
		u.send(p, cmd, c)
		return true
	}
	return u.notHere(p, cmd, c)
}

// notHere sees to it, once all replies before are in, that within a transaction, and for subscribers in RESP2, the rules of these hold
// for what is answered here. false: it is to be answered.
func (u *single) notHere(p *conn, cmd redcon.Command, c *commandtable.Command) bool {
	if !p.Settled() {
		return true
	}
	u.release()
	if p = u.current(); p == nil || leaves(c, cmd) {
		return false
	}
	switch now := p.Status(); {
	case now.Multi && c.Barred:
		p.bar(c)
	case now.Multi:
		u.queue(p, cmd, c, true)
	case now.Mute && c.Subs != nil: // a subcommand that is none
		p.Send(&dedicated.Reply{Cmd: c}, cmd.Raw)
	case now.Mute && !c.Always:
		u.refuseMute(cmd, c)
	default:
		return false
	}
	return true
}

// connect makes it, or waits for that which is made in place of a lost one, and for a Redis that is away for less than a second.
func (u *single) connect() (*conn, error) {
	if err := u.host.Refused(); err != nil {
		return nil, err
	}
	if r := u.restore.Load(); r != nil {
		return u.awaitRestored(r)
	}
	id, n := u.host.Identity(), u.Backend.Node()
	p, err := u.dial(u.Context, id, n, nil, &u.View)
	if unsent := new(upstream.NotSentError); errors.As(err, &unsent) && n.Await(u.clientContext(), id) {
		return u.dial(u.Context, id, n, nil, &u.View)
	}
	return p, err
}

// helloSubscriptions has nothing to do: subscriptions are on the client's own connection.
func (u *single) helloSubscriptions(upstream.Identity) error { return nil }

// dropSubscriptions has nothing to do: they end with the client's own connection.
func (u *single) dropSubscriptions() {}

// left has nothing to do: see upstream.Node.
func (u *single) left(*cluster.Node) {}
