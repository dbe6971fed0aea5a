package session

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

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
	route := u.s.srv.facts.table.Load().routeOf(c)
	multi, mute := p != nil && p.InTransaction(), u.s.ident.Proto == 2 && u.s.own.view.Subscribed()
	switch {
	case multi:
		u.inTransaction(p, cmd, c, answer)
		return
	case mute && (c == nil || !c.Always):
		u.sendMute(cmd, c, answer)
		return
	case route.run != nil:
		answer = u.answer(c, route.run)
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
	case answer == nil && (c == nil || len(u.keysOf(c, cmd.Args, nil)) == 0 && c.Conn == commandtable.ConnNone):
		if !u.subscriptions.Asks(cmd, c) {
			u.s.fail(&upstream.NotSentError{Cause: dedicated.ErrGone})
		}
	default:
		u.s.error("ERR Can't execute '" + c.Name + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context")
	}
}

// forwardNodes sends the run over the nodes.
func (u *clustered) forward(big bool) {
	big = big || u.s.srv.writesPaused()
	if u.s.batch.scripts {
		u.s.forwardScripts(big)
		return
	}
	e := u.executor()
	e.Replicas(u.readsReplicas())
	u.forwardWith(e, big)
	e.Replicas(false) // what the proxy asks on its own is asked of masters
}

// forwardWith sends the run over e, and says how long Redis took. A big one goes over the shared connections when there may
// be no further ones.
func (u *clustered) forwardWith(e *cluster.Executor, big bool) time.Duration {
	if big {
		big = u.s.refused() == nil
	}
	took, sent := u.forwardIf(e, big)
	switch {
	case sent:
	case big && !u.s.srv.writesPaused():
		return u.forwardWith(e, false)
	default:
		u.settleRun(nil, big)
	}
	return took
}

// forwardIf is forwardWith unless there may be no further connection for any of the run.
func (u *clustered) forwardIf(e *cluster.Executor, big bool) (took time.Duration, sent bool) {
	b := u.s.batch
	b.plan(u)
	var t *stream
	if big && len(b.run) == 1 && !b.nodes.apart { // with big traffic a run is one command
		t = u.s.newStream()
		b.nodes.plans[0].Stream(t)
	}
	began := time.Now()
	e.Private(big)
	ctx, done := u.s.clientContext()
	e.Do(ctx, b.nodes.plans)
	done()
	took = time.Since(began)
	if t != nil {
		t.finish()
	}
	if big {
		u.s.usesOwn()
	}
	if !slices.ContainsFunc(b.nodes.plans, func(p *cluster.Plan) bool { return !backend.TooMany(p.Err) }) {
		return took, false
	}
	u.settleRun(t, big)
	return took, true
}

// settleRun gathers what came of the run. t is what its reply was streamed through; nil: it was not.
func (u *clustered) settleRun(t *stream, big bool) {
	b := u.s.batch
	longest, total := 0, 0
	if t != nil {
		longest = t.largest
	}
	for i, p := range b.nodes.plans {
		switch {
		case u.s.guard.Over(): // closed for a command before, which has no reply
		case errors.Is(p.Err, cluster.ErrTooMuch): // and the client has been dropped for it
		case p.Err != nil:
			u.s.answerFor(p.Err, b.cmds[i:i+1])
		default:
			n := b.take(p)
			longest, total = max(longest, n), total+n
		}
	}
	switch {
	case !big:
		u.s.pipes.big.measure(longest, total, len(b.run))
	case longest > bigReply:
		u.s.pipes.big.seen()
	}
}

// take gathers a plan's reply, and says how long it is. What came in pieces is kept in them.
func (b *batch) take(p *cluster.Plan) (n int) {
	for _, piece := range p.Pieces {
		if n += len(piece); b.room(len(piece)) {
			b.setAside()
			b.full, b.fullSize = append(b.full, piece), b.fullSize+len(piece)
			b.total += len(piece)
		}
	}
	b.Reply(p.Reply)
	return n + len(p.Reply)
}

// plan makes the plans of the run.
func (b *batch) plan(u *clustered) {
	t := u.s.srv.facts.table.Load()
	b.nodes.words, b.nodes.plans = b.nodes.words[:0], b.nodes.plans[:cap(b.nodes.plans)]
	for i, raw := range b.run {
		if i == len(b.nodes.plans) {
			b.nodes.plans = append(b.nodes.plans, nil)
		}
		if b.nodes.plans[i] == nil {
			b.nodes.plans[i] = new(cluster.Plan)
		}
		from := len(b.nodes.words)
		b.nodes.words = u.keysOf(b.cmds[i], b.nodes.args[i], b.nodes.words)
		to := len(b.nodes.words)
		b.nodes.plans[i].Set(cluster.Command{Raw: raw, Args: b.nodes.args[i], Keys: b.nodes.words[from:to:to], Facts: t.routeOf(b.cmds[i]).facts})
		if !b.nodes.apart {
			b.nodes.plans[i].InPieces()
		}
	}
	b.nodes.plans = b.nodes.plans[:len(b.run)]
}

// dropPlans forgets the plans, which keep replies.
func (b *batch) dropPlans() {
	for _, p := range b.nodes.plans {
		*p = cluster.Plan{}
	}
}

// nodeAnswerer is who answers what is answered otherwise with a cluster upstream, in transactions aside; nil: nobody.
func nodeAnswerer(name string) nodeAnswer {
	switch name {
	case "wait", "waitaof":
		return (*clustered).waitCommand
	case "client|tracking":
		return (*clustered).tracking
	case "monitor", "shutdown":
		return (*clustered).oneNodeOnly
	case "function|stats":
		return (*clustered).functionStats
	case "pubsub|channels", "pubsub|numsub", "pubsub|shardchannels", "pubsub|shardnumsub":
		return (*clustered).pubsub
	}
	return nil
}

// oneNodeOnly refuses what would be about one of the nodes, and nobody would know which.
func (u *clustered) oneNodeOnly(args [][]byte) {
	u.s.error("ERR '" + strings.ToUpper(string(args[0])) + "' is of one node: lockproxy does not send it to a cluster")
}

// tracking is CLIENT TRACKING: a node tells of its own keys only.
func (u *clustered) tracking(args [][]byte) {
	if len(args) == 3 && equalFold(args[2], "OFF") {
		u.s.ok()
		return
	}
	u.s.error("ERR CLIENT TRACKING is not available with a cluster upstream: lockproxy does not track keys over several nodes")
}

// waitCommand is WAIT, or WAITAOF, at all masters: the least of them counts. It asks for a second at a time, so that the
// client's end is noticed. What they count is all that was written before.
func (u *clustered) waitCommand(args [][]byte) {
	words, at := append([][]byte(nil), args...), len(args)-1
	timeout, ok := commands.Integer(args[at])
	if !ok || timeout < 0 {
		u.s.relay(u.s.askRaw(resp.Command(args))) // says so
		return
	}
	facts := &cluster.Facts{Name: "wait", Request: cluster.AllShards, Response: cluster.Min}
	until := time.Now().Add(time.Duration(timeout) * time.Millisecond)
	u.s.flush()
	u.onOwn(func(e *cluster.Executor) {
		nothing := bytes.Split([]byte("WAIT 0 0"), []byte(" ")) // has Redis count from now on
		first := cluster.NewPlan(cluster.Command{Raw: resp.Command(nothing), Args: nothing, Facts: facts})
		for {
			left := time.Second
			if timeout > 0 {
				left = min(left, max(time.Until(until), time.Millisecond))
			}
			words[at] = integerText(left.Milliseconds())
			p := cluster.NewPlan(cluster.Command{Raw: resp.Command(words), Args: words, Facts: facts})
			plans := []*cluster.Plan{p}
			if first != nil {
				plans, first = []*cluster.Plan{first, p}, nil
			}
			ctx, done := u.s.clientContext()
			e.Do(ctx, plans)
			done()
			if p.Err != nil || enough(p.Reply, args[1:at]) || timeout > 0 && !time.Now().Before(until) || u.s.guard.Over() {
				u.s.relay(p.Reply, p.Err)
				return
			}
		}
	})
}

// enough says that WAIT, or WAITAOF with its two numbers, need not go on: what was wanted is there, or it failed.
func enough(reply []byte, wanted [][]byte) bool {
	r, _ := resp.ParseReply(reply)
	have := r.Elems
	if r.Kind == ':' {
		have = []resp.Reply{r}
	}
	for i := range min(len(have), len(wanted)) {
		if n, ok := commands.Integer(wanted[i]); ok && int64(resp.Digits(have[i].Text)) < n {
			return false
		}
	}
	return true
}

// pubsub is PUBSUB of all nodes: each knows of its own subscribers only.
func (u *clustered) pubsub(args [][]byte) {
	t := u.s.srv.facts.table.Load()
	c, _ := t.find(args)
	p := cluster.NewPlan(cluster.Command{Raw: resp.Command(args), Args: args, Facts: t.routeOf(c).facts})
	ctx, done := u.s.clientContext()
	u.executor().Do(ctx, []*cluster.Plan{p})
	done()
	r, ok := resp.ParseReply(p.Reply)
	if p.Err != nil || !ok || r.Kind != '*' {
		u.s.relay(p.Reply, p.Err)
		return
	}
	counts := strings.HasSuffix(c.Name, "numsub")
	step := 1
	if counts {
		step = 2
	}
	var names [][]byte
	sum := map[string]int{}
	for i := 0; i+step <= len(r.Elems); i += step {
		name := string(r.Elems[i].Raw)
		if _, twice := sum[name]; !twice {
			names = append(names, r.Elems[i].Raw)
		}
		if sum[name] += 0; counts {
			sum[name] += resp.Digits(r.Elems[i+1].Text)
		}
	}
	out := resp.AppendArray(u.s.batch.out, len(names)*step)
	for _, name := range names {
		if out = append(out, name...); counts {
			out = resp.AppendInt(out, int64(sum[string(name)]))
		}
	}
	u.s.batch.out = out
}
