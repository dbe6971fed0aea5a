package backend

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// clusteredPath is how a client's commands reach the nodes of a cluster.
type clusteredPath struct {
	*Forwarder
	nodes     *Clustered
	home      *cluster.Home
	executors [ways]*cluster.Executor // who carries out what goes that way; nil: not needed yet
	presence  *upstream.Pipe          // see show; nil: none
	latest    struct {                // what facts were asked for: most commands are the same as the one before
		command *commandtable.Command
		facts   *cluster.Facts
	}
}

func (b *Clustered) path(f *Forwarder) path {
	return &clusteredPath{Forwarder: f, nodes: b, home: cluster.NewHome()}
}

// executor returns the client's executor for runs that go that way, which the first call makes. After runs whose way is
// owned it is to be closed: others can use its connections then.
func (u *clusteredPath) executor(over way) *cluster.Executor {
	if u.executors[over] == nil {
		u.executors[over] = u.nodes.Executor(over.as(u.client.Identity()), u.home).For(u.client)
		u.executors[over].Private(over.owned())
	}
	return u.executors[over]
}

func (u *clusteredPath) Leave() {
	for over, e := range u.executors {
		if e != nil {
			e.Close()
			u.executors[over] = nil
		}
	}
	if u.presence != nil {
		u.presence.Release()
		u.presence = nil
	}
}

// Show opens that connection, at any node.
func (u *clusteredPath) Show(ctx context.Context) {
	if u.presence == nil {
		snapshot := u.nodes.Snapshot()
		n := snapshot.Any(rand.Int(), 0)
		ctx, done := snapshot.While(ctx, n)
		defer done()
		u.presence, _ = n.Upstream().Open(ctx, u.client.Identity())
	}
}

// Hello asks any node.
func (u *clusteredPath) Hello(id upstream.Identity) (resp.Reply, error) {
	u.executor(shared).As(id)
	got, err := u.Ask([][]byte{[]byte("HELLO"), {byte('0' + id.Proto)}}, Destination{})
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

// SelectDB refuses every other database than 0. A node may have more, but then SELECT would move a connection that
// other clients use, at one node. So a node is only asked whether the client may run SELECT.
func (u *clusteredPath) SelectDB(upstream.Identity) ([]byte, error) {
	reply, err := u.Ask([][]byte{[]byte("SELECT"), []byte("0")}, Destination{})
	if err == nil {
		err = upstream.ErrorIn(reply)
	}
	if err == nil {
		err = &upstream.ReplyError{Line: commandtable.ClusteredOf("select").Line}
	}
	return nil, err
}

func (u *clusteredPath) forward(b *Batch, over way) {
	var t *stream
	if !over.owned() && b.findSlots() {
		if u.forwardStraight(b, over) {
			return
		}
	} else {
		u.findKeys(b)
		u.plan(b)
		t = u.forwardPlans(b, over)
	}
	if over.optional() && u.resumable(b) {
		t = u.forwardPlans(b, shared)
	}
	u.settleRun(b, t)
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

// forwardStraight sends such a run over shared connections. False: the run is not settled, and has plans.
func (u *clusteredPath) forwardStraight(b *Batch, over way) bool {
	b.Total = 0
	e := u.executor(over)
	answered := e.Straight(u.client.Context(), b.run, b.nodes.slots, b, func() []*cluster.Plan {
		u.findKeys(b)
		u.plan(b)
		return b.nodes.plans
	})
	if u.spent += e.Upstream; answered {
		u.measure(b, 0, 0, b.Total)
	}
	return answered
}

// forwardPlans sends what is left of the run. t is what its reply was streamed through; nil: it was not. The run is not
// settled.
func (u *clusteredPath) forwardPlans(b *Batch, over way) (t *stream) {
	for _, p := range b.nodes.plans {
		p.Resume()
	}
	if over.owned() && len(b.run) == 1 { // as it is of a client with long replies
		t = u.newStream(b)
		b.nodes.plans[0].Stream(t)
	}
	e := u.executor(over)
	u.do(e, b.nodes.plans)
	if over.owned() {
		e.Close()
	}
	if t != nil {
		t.finish()
	}
	return t
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
		longest, total = t.longest, t.total // of a single command
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
			Facts: u.facts(b.cmds[i])})
		b.nodes.plans[i].InPieces()
	}
	b.nodes.plans = b.nodes.plans[:len(b.run)]
}

// facts are those of a command, which may be nil; nil: nothing is known of it.
func (u *clusteredPath) facts(c *commandtable.Command) *cluster.Facts {
	if u.latest.command != c {
		u.latest.command, u.latest.facts = c, u.Routes.Load().of(c)
	}
	return u.latest.facts
}
