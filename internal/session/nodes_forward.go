package session

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/scriptcache"
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

// forwardLane is forwardLane with a cluster upstream: a lane has a connection to each node that is asked.
func (u *clustered) forwardLane(quick bool) time.Duration {
	if u.s.mustLogIn() {
		return u.forwardWith(u.executor(), false)
	}
	if u.quick == nil {
		u.lane = u.s.srv.lanes.Join(u.s.ident)
		u.quick = u.newExecutor(u.lane.ID())
	}
	if !quick || u.lane.Stuck() {
		if id, free := u.s.srv.lanes.Take(u.s.ident); free {
			defer u.s.srv.lanes.GiveBack(id)
			e := u.newExecutor(id)
			defer e.Close()
			if took, sent := u.forwardIf(e, false); sent {
				return took
			}
		}
	}
	return u.lane.Timed(func() { u.forwardWith(u.quick, false) })
}

// reload implements way.
func (u *clustered) reload(start int, ends []int, shas []string, seen uint64, send func() time.Duration) {
	u.sendAgain(start, ends, u.loadAgain(shas, seen), send)
}

// sendAgain sends again what was loaded again in a cluster, where a script that has run at one node is unknown to the others.
// Order is kept by slot: what is sent again has nothing behind it that ran in its slot, or in several, or in none.
func (u *clustered) sendAgain(start int, ends []int, states []scriptcache.State, send func() time.Duration) {
	b := u.s.batch
	var again []int
	behind := map[int]bool{} // slots in which something ran
look:
	for i := len(states) - 1; i >= 0; i-- {
		slot, one := b.nodes.plans[i].Slot()
		switch {
		case states[i] == scriptcache.Loaded && one && !behind[slot]:
			again = append(again, i)
		case states[i] != scriptcache.Unknown: // it did not run, and its NOSCRIPT stands
		case one:
			behind[slot] = true
		default:
			break look
		}
	}
	if len(again) == 0 || u.s.guard.Over() {
		return
	}
	slices.Reverse(again)
	old := append([]byte(nil), b.out[start:]...)
	run, cmds, args, out := b.run, b.cmds, b.nodes.args, b.out[:start]
	b.run, b.cmds, b.nodes.args, b.out = nil, nil, nil, nil
	for _, i := range again {
		b.run, b.cmds, b.nodes.args = append(b.run, run[i]), append(b.cmds, cmds[i]), append(b.nodes.args, args[i])
	}
	b.nodes.apart = true
	send()
	b.nodes.apart = false
	// The replies are the plans', too.
	b.run, b.cmds, b.nodes.args, b.out, b.full, b.fullSize = run, cmds, args, out, nil, 0
	from, next := 0, 0
	for i, end := range ends {
		reply := old[from:end]
		if next < len(again) && again[next] == i {
			p := b.nodes.plans[next]
			if reply = p.Reply; p.Err != nil {
				if u.s.guard.Over() { // closed for it
					return
				}
				reply = resp.AppendError(nil, errorLine(p.Err))
			}
			next++
		}
		from = end
		b.Reply(reply)
	}
}

// loadAgain is reload with a cluster upstream: each script is loaded again at the node that did not have it.
func (u *clustered) loadAgain(shas []string, seen uint64) []scriptcache.State {
	b, states := u.s.batch, make([]scriptcache.State, len(shas))
	done := map[*cluster.Node]bool{}
	for i, sha := range shas {
		n := b.nodes.plans[i].From()
		if sha == "" || n == nil || done[n] {
			continue
		}
		done[n] = true
		var wanted []string
		for k, other := range shas {
			if other != "" && b.nodes.plans[k].From() == n {
				wanted = append(wanted, other)
			}
		}
		known := u.s.srv.reload(n.Upstream(), n.ID, wanted, seen)
		for k, other := range shas {
			if other != "" && b.nodes.plans[k].From() == n {
				states[k] = known[other]
			}
		}
	}
	return states
}

// blockTimeout finds the word of a blocking command that says for how long, and in what unit. 0: there is none.
func blockTimeout(c *commandtable.Command, args [][]byte) (at int, unit time.Duration) {
	switch c.Name {
	case "blpop", "brpop", "bzpopmin", "bzpopmax", "brpoplpush", "blmove":
		return len(args) - 1, time.Second
	case "blmpop", "bzmpop":
		return 1, time.Second
	case "xread", "xreadgroup":
		for i := 1; i+1 < len(args); i++ {
			if bytes.EqualFold(args[i], []byte("BLOCK")) {
				return i + 1, time.Millisecond
			}
		}
	}
	return 0, 0
}

// timeLeft is the command as it is to be sent when so much of its time has passed.
func timeLeft(c *commandtable.Command, args [][]byte, passed time.Duration) []byte {
	at, unit := blockTimeout(c, args)
	if at == 0 {
		return resp.Command(args)
	}
	n, err := strconv.ParseFloat(string(args[at]), 64)
	if err != nil || n <= 0 { // 0: for ever; else Redis says what is wrong
		return resp.Command(args)
	}
	left := max(time.Duration(n*float64(unit))-passed, time.Millisecond)
	words := append([][]byte(nil), args...)
	if unit == time.Second {
		words[at] = strconv.AppendFloat(nil, left.Seconds(), 'f', 3, 64)
	} else {
		words[at] = integerText(left.Milliseconds())
	}
	return resp.Command(words)
}

func integerText(n int64) []byte { return strconv.AppendInt(nil, n, 10) }
