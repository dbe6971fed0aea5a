package session

import (
	"context"
	"errors"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/subscription"
	"github.com/lockproxy/lockproxy/upstream"
)

// What is different when the upstream is a cluster is in the files nodes*.go: what has a connection of its own goes to the node that has
// its slot.

const crossSlot = "CROSSSLOT Keys in request don't hash to the same slot"

// clustered is how a client has connections of its own at the nodes of a cluster.
type clustered struct {
	s             *Session
	nodes         *backend.Clustered
	subscriptions *subscription.Subscriptions // nil: none yet
}

func (u *clustered) left(n *cluster.Node) { u.nodes.Release(n) }

// openDedicated gives the session a connection of its own, at any node.
func (u *clustered) openDedicated() (*dedicatedConn, error) {
	return u.openDedicatedForSlot(backend.NoSlot)
}

// helloSubscriptions has the connections that the client's subscriptions have speak another protocol.
func (u *clustered) helloSubscriptions(id upstream.Identity) error { return u.subscriptions.Hello(id) }

// dropSubscriptions ends them all.
func (u *clustered) dropSubscriptions() {
	if x := u.subscriptions; x != nil {
		u.subscriptions = nil
		x.Close()
	}
}

// dispatch is dispatch with a cluster upstream. A connection of the client's own is at one node, so that only what
// it is needed for goes there; all else goes its way beside it, once the pending replies there are in.
func (u *clustered) dispatch(cmd redcon.Command, c *commandtable.Command, answer answer) {
	select {
	case <-u.s.srv.facts.known:
	default:
		if c, answer = u.awaitTable(cmd.Args); u.s.guard.Over() {
			return
		}
	}
	p := u.s.currentDedicated()
	if p != nil {
		defer u.s.release()
	}
	if u.s.own.lostState.any() && u.s.afterLoss(p, cmd, c) {
		return
	}
	if c == nil && answer != nil { // Redis has not listed it
		u.s.forward()
		c, answer = u.s.resolve(cmd.Args)
	}
	instead := u.s.pipes.Instead(c)
	multi, mute := p != nil && p.InTransaction(), u.s.ident.Proto == 2 && u.s.own.view.Subscribed()
	switch {
	case multi:
		u.inTransaction(p, cmd, c, answer)
		return
	case mute && (c == nil || !c.Always):
		u.sendMute(cmd, c, answer)
		return
	case instead != nil:
		answer = checked(c, func(s *Session, args [][]byte) { s.relay(instead(args)) })
	case c != nil && (c.Conn.Starts() || p != nil && c.Conn != commandtable.ConnNone):
		u.s.forward()
		if !u.s.guard.Over() {
			u.runDedicated(p, cmd, c)
		}
		return
	}
	if p != nil && !p.Settled() {
		return
	}
	u.s.forwardOrAnswer(cmd, c, answer)
}

// awaitTable waits, for as long as a command is tried, until Redis has told of its commands, and finds one: without that
// no command finds its node.
func (u *clustered) awaitTable(args [][]byte) (*commandtable.Command, answer) {
	u.s.forward()
	timer := time.NewTimer(u.nodes.RetryFor())
	defer timer.Stop()
	ctx, done := u.s.clientContext()
	defer done()
	select {
	case <-u.s.srv.facts.known:
	case <-timer.C:
	case <-ctx.Done():
	}
	c, answer := u.s.srv.facts.table.Load().find(args)
	if answer == nil && !u.s.srv.facts.table.Load().Learned() {
		answer = (*Session).notKnownYet
	}
	return c, answer
}

// notKnownYet is what a command is answered that cannot be sent anywhere.
func (s *Session) notKnownYet([][]byte) {
	s.fail(&upstream.NotSentError{Cause: errCommandsUnknown})
}

var errCommandsUnknown = errors.New("the cluster has not told of its commands yet")

// sendMute is for what a subscriber in RESP2 sends. Redis says no in its own words, but for what has keys, which it would
// send elsewhere first.
func (u *clustered) sendMute(cmd redcon.Command, c *commandtable.Command, answer answer) {
	u.s.forward()
	switch {
	case u.s.guard.Over():
	case c != nil && c.Conn == commandtable.ConnSubscribe:
		u.subscribe(cmd, c)
	case answer == nil && (c == nil || len(u.s.pipes.KeysOf(c, cmd.Args, nil)) == 0 && c.Conn == commandtable.ConnNone):
		if !u.subscriptions.Asks(cmd, c) {
			u.s.fail(&upstream.NotSentError{Cause: dedicated.ErrGone})
		}
	default:
		u.s.error("ERR Can't execute '" + c.Name + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context")
	}
}

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
func (h subscriber) Answer(add func(out []byte) []byte) { h.u.s.batch.Out = add(h.u.s.batch.Out) }

// Fail implements subscription.Host.
func (h subscriber) Fail(err error) { h.u.s.fail(err) }

// Trouble implements subscription.Host.
func (h subscriber) Trouble(err error) { h.u.s.noteTrouble(err) }

// LookAgain implements subscription.Host.
func (h subscriber) LookAgain() { h.u.lookAgain() }

// Pause implements subscription.Host.
func (h subscriber) Pause(d time.Duration) { h.u.s.pause(d) }
