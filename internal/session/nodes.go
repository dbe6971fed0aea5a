package session

import (
	"context"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/scriptcache"
	"github.com/lockproxy/lockproxy/internal/subscription"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// What is different when the upstream is a cluster is in the files nodes*.go: ordinary commands go through a
// cluster.Executor, and what has a connection of its own goes to the node that has its slot.

const noSlot = -1

const crossSlot = "CROSSSLOT Keys in request don't hash to the same slot"

// clustered is how a client's commands reach the nodes of a cluster.
type clustered struct {
	s             *Session
	nodes         *backend.Clustered
	plain         *cluster.Executor           // nil: not needed yet
	quick         *cluster.Executor           // the quick lane of scripts; nil: not needed yet
	lane          *scriptcache.Lane           // that one
	presence      *upstream.Pipe              // see show; nil: none
	subscriptions *subscription.Subscriptions // nil: none yet
}

// executor is the session's own, made when first needed.
func (u *clustered) executor() *cluster.Executor {
	if u.plain == nil {
		u.plain = u.newExecutor(u.s.ident)
	}
	return u.plain
}

// newExecutor makes an executor of the session's for id. Close gives its connections back.
func (u *clustered) newExecutor(id upstream.Identity) *cluster.Executor {
	return u.nodes.Executor(id).For(u.s)
}

// leave gives all connections back.
func (u *clustered) leave() {
	if u.plain != nil {
		u.plain.Close()
	}
	if u.presence != nil {
		u.presence.Release()
	}
	if u.quick != nil {
		u.quick.Close()
		u.lane.Leave()
	}
	u.plain, u.quick, u.lane, u.presence = nil, nil, nil, nil
}

func (u *clustered) left(n *cluster.Node) { u.nodes.Release(n) }

// returnBig gives back what big traffic alone needs.
func (u *clustered) returnBig() {
	if u.plain != nil {
		u.plain.Private(false)
	}
}

// show has a connection to any node as the client's user.
func (u *clustered) show(ctx context.Context) {
	if u.presence == nil {
		u.presence, _ = u.nodes.Snapshot().Any(int(u.s.peer.id)).Upstream().Open(ctx, u.s.ident)
	}
}

// served says no: the client has a connection to each node.
func (u *clustered) served() bool { return false }

// hello asks any node.
func (u *clustered) hello(id upstream.Identity) (resp.Reply, error) {
	u.executor().As(id)
	got, err := u.ask(resp.AppendCommand(nil, "HELLO", string(rune('0'+id.Proto))))
	if line, bad := resp.ErrorLine(got); err == nil && bad {
		err = &upstream.ReplyError{Line: line}
	}
	if err != nil {
		u.executor().As(u.s.ident)
		return resp.Reply{}, err
	}
	u.s.identity(id)
	u.s.admit()
	answer, _ := resp.ParseReply(got)
	return answer, nil
}

// selectDB has any node say, in its own words, that there is no other database.
func (u *clustered) selectDB(n int, word string) { u.s.relay(u.s.ask("SELECT", word)) }

// openDedicated gives the session a connection of its own, at any node.
func (u *clustered) openDedicated() (*dedicatedConn, error) { return u.openDedicatedForSlot(noSlot) }

// helloSubscriptions has the connections that the client's subscriptions have speak another protocol.
func (u *clustered) helloSubscriptions(id upstream.Identity) error { return u.subscriptions.Hello(id) }

// dropSubscriptions ends them all.
func (u *clustered) dropSubscriptions() {
	if x := u.subscriptions; x != nil {
		u.subscriptions = nil
		x.Close()
	}
}

// nodeAnswer is an answer that is another one with a cluster.
type nodeAnswer func(u *clustered, args [][]byte)

// answer is run as an answer, once what Redis would check first is.
func (u *clustered) answer(c *commandtable.Command, run nodeAnswer) answer {
	return checked(c, func(_ *Session, args [][]byte) { run(u, args) })
}

// route is what the cluster needs to know of a command.
type route struct {
	facts *cluster.Facts
	run   nodeAnswer // in place of forwarding it, or of the answer there is on one node; nil: none
}

func newRoute(c *commandtable.Command) *route {
	r := &route{facts: factsOf(c)}
	if !c.Refusal {
		r.run = nodeAnswerer(c.Name)
	}
	return r
}

func factsOf(c *commandtable.Command) *cluster.Facts {
	if c.Spec == nil {
		return nil
	}
	return cluster.FactsOf(c.Name, c.Spec.Flags, c.Spec.Tips)
}

var noRoute route

// routeOf is c's, which is nil when nothing is known of the command. The first call notes those of all commands.
func (a *answers) routeOf(c *commandtable.Command) *route {
	if c == nil {
		return &noRoute
	}
	a.routed.Do(func() {
		a.routes = make(map[*commandtable.Command]*route)
		a.All(func(c *commandtable.Command) { a.routes[c] = newRoute(c) })
	})
	if r := a.routes[c]; r != nil {
		return r
	}
	return &route{facts: factsOf(c)}
}

// keysOf finds which words of a call are keys, and appends them to dst. Where only Redis can tell, it is asked.
func (u *clustered) keysOf(c *commandtable.Command, args [][]byte, dst []int) []int {
	if c == nil || c.Spec == nil {
		return dst
	}
	keys, known := c.Spec.Keys(args, dst)
	if known {
		return keys
	}
	reply, err := u.ask(resp.Command(append([][]byte{[]byte("COMMAND"), []byte("GETKEYS")}, args...)))
	if err != nil {
		return dst
	}
	return commandtable.Named(reply, args, dst)
}

// slotOf is the slot of a call's keys, noSlot when it has none. cross: they are in several.
func (u *clustered) slotOf(c *commandtable.Command, args [][]byte) (slot int, cross bool) {
	slot = noSlot
	for _, k := range u.keysOf(c, args, nil) {
		of := cluster.Slot(args[k])
		if slot != noSlot && of != slot {
			return slot, true
		}
		slot = of
	}
	return slot, false
}

// question is what there is to know of commands that the proxy asks on its own: a lost reply is no unknown outcome.
var question = &cluster.Facts{ReadOnly: true}

// ask is ask of any node.
func (u *clustered) ask(raw []byte) ([]byte, error) {
	return u.askPlan(cluster.Command{Raw: raw, Facts: question})
}

func (u *clustered) askPlan(c cluster.Command) ([]byte, error) {
	p := cluster.NewPlan(c)
	ctx, done := u.s.clientContext()
	defer done()
	u.executor().Do(ctx, []*cluster.Plan{p})
	err := p.Err
	if err != nil {
		err = backend.Unanswered(err)
		u.s.noteTrouble(err)
		return nil, err
	}
	return p.Reply, nil
}

// askAbout asks the node that has the key.
func (u *clustered) askAbout(words ...string) ([]byte, error) {
	args := make([][]byte, len(words))
	for i, w := range words {
		args[i] = []byte(w)
	}
	return u.askPlan(cluster.Command{Raw: resp.AppendCommand(nil, words...), Args: args, Keys: []int{1}, Facts: question})
}

// askSlot asks the node that has the slot.
func (u *clustered) askSlot(slot int, words ...string) ([]byte, error) {
	return u.s.askWhere(u.nodes.Snapshot().Owner(slot), words...)
}

// askApart is askApart of all nodes that the command concerns.
func (u *clustered) askApart(args [][]byte) ([]byte, error) {
	if err := u.s.refused(); err != nil {
		return nil, err
	}
	t := u.s.srv.facts.table.Load()
	c, _ := t.find(args)
	p := cluster.NewPlan(cluster.Command{Raw: resp.Command(args), Args: args, Facts: t.routeOf(c).facts})
	u.onOwn(func(e *cluster.Executor) {
		ctx, done := u.s.clientContext()
		defer done()
		e.Do(ctx, []*cluster.Plan{p})
	})
	return p.Reply, p.Err
}

// onOwn has commands sent over connections of their own.
func (u *clustered) onOwn(do func(e *cluster.Executor)) {
	e := u.newExecutor(u.s.ident)
	defer e.Close()
	e.Private(true)
	do(e)
}

// readsReplicas says whether what the client reads may come from a replica. While its connection holds a lock it may not,
// since what the last holder wrote might be missing there; nor while it has a connection of its own, as under WATCH, which
// is about what the master has.
func (u *clustered) readsReplicas() bool {
	return u.s.pipes.replicas && u.s.own.dedicated == nil && u.s.held() == 0
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
func (h subscriber) Answer(add func(out []byte) []byte) { h.u.s.batch.out = add(h.u.s.batch.out) }

// Fail implements subscription.Host.
func (h subscriber) Fail(err error) { h.u.s.fail(err) }

// Trouble implements subscription.Host.
func (h subscriber) Trouble(err error) { h.u.s.noteTrouble(err) }

// LookAgain implements subscription.Host.
func (h subscriber) LookAgain() { h.u.lookAgain() }

// Pause implements subscription.Host.
func (h subscriber) Pause(d time.Duration) { h.u.s.pause(d) }
