package own

import (
	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/upstream"
)

// single gives a client a connection of its own to one Redis. While the client has one, all its commands go there.
type single struct{ *Connections }

func (u *single) run(p *conn, cmd redcon.Command, c *commandtable.Command, here bool) (taken bool) {
	if p == nil {
		if !c.Conn.Starts() {
			return false
		}
		var err error
		if p, err = u.open(); err != nil {
			u.Failed(c, err)
			return true
		}
	}
	if !here || c.Conn != commandtable.ConnNone {
		u.send(p, cmd, c)
		return true
	}
	return u.notHere(p, cmd, c)
}

// notHere applies the rules of transactions, and those for subscribers in RESP2, to a command that lockproxy answers,
// once all earlier replies have come. false: lockproxy is to answer the command.
func (u *single) notHere(p *conn, cmd redcon.Command, c *commandtable.Command) bool {
	if !p.Wait() {
		return true
	}
	p = u.rest()
	switch {
	case leaves(c, cmd):
		return false
	case u.lost.loss == lostTransaction: // just now
		u.answerLost(nil, c.Conn, len(cmd.Args)-1)
		return true
	case p == nil:
		return false
	}
	switch now := p.Status(); {
	case now.Multi && c.Barred:
		p.bar(c)
	case now.Multi:
		u.queue(p, cmd, c, true)
	case !u.mutes(c):
		return false
	case isNoSubcommand(c, cmd):
		forwarded()
		p.Send(&dedicated.Reply{Cmd: c}, cmd.Raw)
	default:
		refuseMute(u.client, cmd, c)
	}
	return true
}

// connect makes the client's own connection. It waits for a Redis that has been away for less than a second.
func (u *single) connect() (*conn, error) {
	return u.connectAs(u.client.Identity(), &u.View)
}

// connectAs makes a connection as id. It waits as connect does.
func (u *single) connectAs(id upstream.Identity, v *dedicated.View) (*conn, error) {
	return u.dial(u.Context, id, u.Backend.Node(), nil, v)
}

// masters has run use a connection to the one Redis.
func (u *single) masters(id upstream.Identity, run func(conns) error) error {
	p, err := u.connectAs(id, &u.Waits)
	if err != nil {
		return err
	}
	return run(conns{p})
}
