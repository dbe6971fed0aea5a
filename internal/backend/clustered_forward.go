package backend

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/scriptcache"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// clusteredPath is how a client's commands reach the nodes of a cluster.
type clusteredPath struct {
	*Forwarder
	nodes    *Clustered
	home     *cluster.Home
	plain    *cluster.Executor // nil: not needed yet
	own      *cluster.Executor // of private connections, which it has while it is at work; nil: not needed yet
	quick    *cluster.Executor // the quick lane of scripts; nil: not needed yet
	lane     *scriptcache.Lane // the lane of quick
	presence *upstream.Pipe    // see show; nil: none
	latest   struct {          // what route was asked for: most commands are the same as the one before
		command *commandtable.Command
		route   *route
	}
}

func (b *Clustered) path(f *Forwarder) path {
	return &clusteredPath{Forwarder: f, nodes: b, home: cluster.NewHome()}
}

// executor returns the client's executor for runs that go that way, which the first call makes.
func (u *clusteredPath) executor(over way) *cluster.Executor {
	e := &u.plain
	if over != shared {
		e = &u.own
	}
	if *e == nil {
		*e = u.newExecutor(u.client.Identity())
		(*e).Private(over != shared)
	}
	return *e
}

// newExecutor makes an executor of the client's for id. Close gives its connections back.
func (u *clusteredPath) newExecutor(id upstream.Identity) *cluster.Executor {
	return u.nodes.Executor(id, u.home).For(u.client)
}

func (u *clusteredPath) leave() {
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
	u.plain, u.own, u.quick, u.lane, u.presence = nil, nil, nil, nil, nil
}

// show opens that connection, at any node.
func (u *clusteredPath) show(ctx context.Context) {
	if u.presence == nil {
		snapshot := u.nodes.Snapshot()
		n := snapshot.Any(rand.Int(), 0)
		ctx, done := snapshot.While(ctx, n)
		defer done()
		u.presence, _ = n.Upstream().Open(ctx, u.client.Identity())
	}
}

// hello asks any node.
func (u *clusteredPath) hello(id upstream.Identity) (resp.Reply, error) {
	u.executor(shared).As(id)
	got, err := u.ask([][]byte{[]byte("HELLO"), {byte('0' + id.Proto)}}, Place{})
	if err == nil {
		err = upstream.ErrorIn(got)
	}
	if err != nil {
		u.executor(shared).As(u.client.Identity())
		return resp.Reply{}, err
	}
	u.SetIdentity(id)
	answer, _ := resp.ParseReply(got)
	return answer, nil
}

// selectDB refuses every other database than 0. A node may have more, but then SELECT would move a connection that
// other clients use, at one node. So a node is only asked whether the client may run SELECT.
func (u *clusteredPath) selectDB(upstream.Identity) ([]byte, error) {
	reply, err := u.ask([][]byte{[]byte("SELECT"), []byte("0")}, Place{})
	if err == nil {
		err = upstream.ErrorIn(reply)
	}
	if err == nil {
		err = &upstream.ReplyError{Line: "ERR SELECT is not allowed in cluster mode"}
	}
	return nil, err
}

func (u *clusteredPath) forward(b *Batch, over way) {
	if over == shared && u.Writes.Paused() {
		over = private
	}
	e := u.executor(over)
	if over == shared && !u.Replicas && !b.scripts && b.findSlots() {
		u.forwardStraight(b, e)
		return
	}
	u.findKeys(b)
	u.plan(b)
	u.forwardWith(b, e, over)
}

// findSlots finds the slots of the run's commands; false: not each is known to have a single key.
func (b *Batch) findSlots() bool {
	b.nodes.slots = b.nodes.slots[:0]
	for i, c := range b.cmds {
		if c == nil || c.Spec == nil {
			return false
		}
		words := b.nodes.args[i]
		keys, known := c.Spec.Keys(words, b.nodes.words[:0])
		if b.nodes.words = keys; !known || len(keys) != 1 {
			return false
		}
		b.nodes.slots = append(b.nodes.slots, cluster.Slot(words[keys[0]]))
	}
	return true
}

// forwardStraight sends such a run over the shared connections.
func (u *clusteredPath) forwardStraight(b *Batch, e *cluster.Executor) {
	b.Total = 0
	answered := e.Straight(u.client.Context(), b.run, b.nodes.slots, b, func() []*cluster.Plan {
		u.findKeys(b)
		u.plan(b)
		return b.nodes.plans
	})
	if u.spent += e.Upstream; answered {
		u.measure(b, 0, 0, b.Total)
		return
	}
	u.settleRun(b, nil)
}

// forwardWith sends what is left of the run over e, and says how long Redis took.
func (u *clusteredPath) forwardWith(b *Batch, e *cluster.Executor, over way) time.Duration {
	e.Replicas(u.Replicas && !b.scripts)
	took, sent := u.forwardIf(b, e, over)
	e.Replicas(false) // what the proxy asks on its own is asked of masters
	switch {
	case sent:
	case over == private && !u.Writes.Paused():
		return took + u.forwardWith(b, u.executor(shared), shared)
	default:
		u.settleRun(b, nil)
	}
	return took
}

// forwardIf sends what is left of the run over e. sent is false if there was no connection: then the run is not
// settled, and the next forwardIf sends what is left.
func (u *clusteredPath) forwardIf(b *Batch, e *cluster.Executor, over way) (took time.Duration, sent bool) {
	for _, p := range b.nodes.plans {
		p.Resume()
	}
	var t *stream
	if over != shared && len(b.run) == 1 && !b.nodes.apart { // with big traffic a run is one command
		t = u.newStream(b)
		b.nodes.plans[0].Stream(t)
	}
	began := time.Now()
	u.do(e, b.nodes.plans)
	took = time.Since(began)
	if t != nil {
		t.finish()
	}
	if over != shared {
		e.Close()
	}
	if u.resumable(b) {
		return took, false
	}
	u.settleRun(b, t)
	return took, true
}

// resumable says that there was no connection for the run, or for a part of its only command. In a run of several
// commands a part could not be sent later, because later commands may have run.
func (u *clusteredPath) resumable(b *Batch) bool {
	if plans := b.nodes.plans; len(plans) == 1 {
		return cluster.NoConnection(plans[0].Err)
	}
	return !slices.ContainsFunc(b.nodes.plans, func(p *cluster.Plan) bool { return !p.Unsent() })
}

// do carries plans out, at most until the client has gone.
func (u *clusteredPath) do(e *cluster.Executor, plans []*cluster.Plan) {
	e.Do(u.client.Context(), plans)
	u.spent += e.Upstream
}

// settleRun handles the result of the run. t is what its reply was streamed through; nil: it was not.
func (u *clusteredPath) settleRun(b *Batch, t *stream) {
	longest, at, total := 0, 0, 0
	if t != nil {
		longest, total = t.largest, t.total // of a single command
	}
	for i, p := range b.nodes.plans {
		switch {
		case u.client.End.Over(): // closed because an earlier command has no reply
		case errors.Is(p.Err, cluster.ErrTooMuch): // and the client has been dropped for it
		case p.Err != nil:
			u.fail(b, p.Err, b.cmds[i:i+1])
		default:
			n := b.take(p)
			if total += n; n > longest {
				longest, at = n, i
			}
		}
	}
	u.measure(b, longest, at, total)
}

// findKeys finds the keys of the run's commands.
func (u *clusteredPath) findKeys(b *Batch) {
	b.nodes.words, b.nodes.keys = b.nodes.words[:0], b.nodes.keys[:0]
	for i, c := range b.cmds {
		from := len(b.nodes.words)
		b.nodes.words = u.KeysOf(c, b.nodes.args[i], b.nodes.words)
		to := len(b.nodes.words)
		b.nodes.keys = append(b.nodes.keys, b.nodes.words[from:to:to])
	}
}

// plan makes the plans of the run, whose keys have been found.
func (u *clusteredPath) plan(b *Batch) {
	b.nodes.plans = b.nodes.plans[:cap(b.nodes.plans)]
	for i, raw := range b.run {
		if i == len(b.nodes.plans) {
			b.nodes.plans = append(b.nodes.plans, nil)
		}
		if b.nodes.plans[i] == nil {
			b.nodes.plans[i] = new(cluster.Plan)
		}
		b.nodes.plans[i].Set(cluster.Command{Raw: raw, Args: b.nodes.args[i], Keys: b.nodes.keys[i],
			Facts: u.route(b.cmds[i]).facts})
		if !b.nodes.apart {
			b.nodes.plans[i].InPieces()
		}
	}
	b.nodes.plans = b.nodes.plans[:len(b.run)]
}

// route is the route of a command, which may be nil.
func (u *clusteredPath) route(c *commandtable.Command) *route {
	if u.latest.route == nil || u.latest.command != c {
		u.latest.command, u.latest.route = c, u.Routes.Load().of(c)
	}
	return u.latest.route
}

// forwardScripts implements path: a lane has a connection to each node that is asked. If there can be no further
// connection, the run goes over the connections for ordinary commands.
func (u *clusteredPath) forwardScripts(b *Batch, quick bool) time.Duration {
	u.findKeys(b)
	u.plan(b)
	if u.Writes.Paused() {
		return u.forwardWith(b, u.executor(private), private)
	}
	if u.quick == nil {
		u.lane = u.Lanes.Join(u.client.Identity())
		u.quick = u.newExecutor(u.lane.ID())
	}
	if !quick || u.lane.Stuck() {
		if id, free := u.Lanes.Take(u.client.Identity()); free {
			defer u.Lanes.GiveBack(id)
			e := u.newExecutor(id)
			defer e.Close()
			if took, sent := u.forwardIf(b, e, shared); sent {
				return took
			}
		}
	}
	sent := false
	took := u.lane.Timed(func() { _, sent = u.forwardIf(b, u.quick, shared) })
	if !sent {
		took += u.forwardWith(b, u.executor(shared), shared)
	}
	return took
}

// reload loads each script again at the node that did not have it. In a cluster a script that has run at one node is
// unknown to the others. Order is kept by slot: a command is sent again only if nothing after it has run in its slot,
// in several slots, or without a slot.
func (u *clusteredPath) reload(b *Batch, lost lostScripts, send func() time.Duration) {
	states := u.loadAgain(b, lost.shas, lost.seen)
	again := sentAgain(states, func(i int) (int, bool) { return b.nodes.plans[i].Slot() })
	if len(again) == 0 || u.client.End.Over() {
		return
	}
	old := append([]byte(nil), b.Bytes[lost.start:]...)
	run, cmds, args, out := b.run, b.cmds, b.nodes.args, b.Bytes[:lost.start]
	b.run, b.cmds, b.nodes.args, b.Bytes = nil, nil, nil, nil
	for _, i := range again {
		b.run, b.cmds, b.nodes.args = append(b.run, run[i]), append(b.cmds, cmds[i]), append(b.nodes.args, args[i])
	}
	b.nodes.apart = true
	send()
	b.nodes.apart = false
	// The plans have the replies, so what was gathered in b is dropped.
	b.run, b.cmds, b.nodes.args = run, cmds, args
	b.Set(out)
	said := map[int]*cluster.Plan{} // by command that was sent again
	for k, i := range again {
		said[i] = b.nodes.plans[k]
	}
	from := 0
	for i, end := range lost.ends {
		reply := old[from:end]
		from = end
		if p := said[i]; p != nil {
			if reply = p.Reply; p.Err != nil {
				if u.client.End.Over() { // closed for it
					return
				}
				reply = resp.AppendError(nil, client.ErrorLine(p.Err))
			}
		}
		b.Reply(reply)
	}
}

// loadAgain loads scripts again, each at the node that did not have it, and returns the state of each.
func (u *clusteredPath) loadAgain(b *Batch, shas []string, seen uint64) []scriptcache.State {
	states := make([]scriptcache.State, len(shas))
	at := map[*cluster.Node][]int{} // commands
	for i, sha := range shas {
		if sha != "" {
			n := b.nodes.plans[i].From()
			at[n] = append(at[n], i)
		}
	}
	delete(at, nil)
	for n, commands := range at {
		var wanted []string
		for _, i := range commands {
			wanted = append(wanted, shas[i])
		}
		known := u.load(n.Upstream(), n.ID, wanted, seen)
		for _, i := range commands {
			states[i] = known[shas[i]]
		}
	}
	return states
}
