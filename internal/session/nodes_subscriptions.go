package session

import (
	"context"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/subscription"
	"github.com/lockproxy/lockproxy/upstream"
)

// subscribe is SUBSCRIBE and its kin.
func (u *clustered) subscribe(cmd redcon.Command, c *commandtable.Command) {
	if u.subscriptions == nil {
		s := u.s
		u.subscriptions = subscription.New(subscription.Config{Host: subscriber{u}, Client: s.guard, Context: s.srv.ctx, Nodes: u.nodes, View: &s.own.view,
			Spread: int(s.peer.id), Service: s.srv.o.Service, Listeners: &s.srv.up.listeners})
	}
	u.subscriptions.Run(cmd, c)
}

// subscriber is what a client's subscriptions ask of its session: see subscription.Host.
type subscriber struct{ u *clustered }

var _ subscription.Host = subscriber{}

// Connect implements subscription.Host.
func (h subscriber) Connect(ctx context.Context, id upstream.Identity, at *cluster.Node) (subscription.Link, error) {
	p, err := h.u.connectAs(ctx, id, at, new(dedicated.View))
	if err != nil {
		return subscription.Link{}, err
	}
	return subscription.Link{Conn: p.Conn, Relay: func(cmd redcon.Command, c *commandtable.Command) { h.u.s.send(p, cmd, c) }, End: p.drop}, nil
}

// Hello implements subscription.Host.
func (h subscriber) Hello(c *dedicated.Conn, id upstream.Identity) error {
	return helloDedicated(c, id, false)
}

// Find implements subscription.Host.
func (h subscriber) Find(name string) *commandtable.Command { return h.u.s.srv.find(name) }

// Lockless implements subscription.Host.
func (h subscriber) Lockless() bool { return h.u.s.lockless() }

// Identity implements subscription.Host.
func (h subscriber) Identity() upstream.Identity { return h.u.s.ident }

// Refused implements subscription.Host.
func (h subscriber) Refused() error { return h.u.s.refused() }

// Answer implements subscription.Host.
func (h subscriber) Answer(add func(out []byte) []byte) { h.u.s.batch.out = add(h.u.s.batch.out) }

// Fail implements subscription.Host.
func (h subscriber) Fail(err error) { h.u.s.fail(err) }

// Trouble implements subscription.Host.
func (h subscriber) Trouble(err error) { h.u.s.noteTrouble(err) }

// LookAgain implements subscription.Host.
func (h subscriber) LookAgain() { h.u.lookAgain() }

// Pause implements subscription.Host.
func (h subscriber) Pause(d time.Duration) { h.u.s.pause(d) }
