package session

import (
	"context"
	"strconv"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/scriptcache"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// way is how one client's commands reach Redis: single, or clustered.
type way interface {
	// dispatch has a command run, in a transaction perhaps; answer, if there is one, answers it here.
	dispatch(cmd redcon.Command, c *commandtable.Command, answer answer)

	// forward sends the run, and gathers its replies.
	forward(big bool)
	// sendScripts is forward of a run that has scripts in it, over the connection that suits it; it says how long Redis took.
	sendScripts(big, runs, known bool) time.Duration
	// reload has scripts loaded again that Redis has lost, and what needed them sent again.
	reload(start int, ends []int, shas []string, seen uint64, send func() time.Duration)

	// ask asks what any node knows; askAbout the one that has the key behind the command's name; askSlot the one that has the slot.
	ask(raw []byte) ([]byte, error)
	askAbout(words ...string) ([]byte, error)
	askSlot(slot int, words ...string) ([]byte, error)
	// askApart asks on connections of its own, where it need not wait for others.
	askApart(args [][]byte) ([]byte, error)
	askInfo(args [][]byte) ([]byte, error)

	// hello takes id on and asks for the answer to HELLO there; if Redis does not agree nothing changes.
	hello(id upstream.Identity) (resp.Reply, error)
	helloSubscriptions(id upstream.Identity) error
	selectDB(n int, word string)
	// show has a shared connection as the client's user.
	show(ctx context.Context)
	// served says that the shared connection of a client that has not authenticated is one that Redis lets run commands.
	served() bool

	openDedicated() (*dedicatedConn, error)
	// left is told that a connection of the session's own at that node has ended.
	left(n *cluster.Node)
	fenced(r lock.HoldRequest, c *commandtable.Command, args [][]byte) error

	dropSubscriptions()
	// returnBig gives back what big traffic alone needs; leave all shared connections.
	returnBig()
	leave()
}

// ask runs one command that changes nothing on the client's identity and returns Redis' reply as it came. A lost
// reply is no unknown outcome here: the error then is a *upstream.NotSentError, as if nothing had been asked.
func (s *Session) ask(args ...string) ([]byte, error) {
	return s.askRaw(resp.AppendCommand(nil, args...))
}

func (s *Session) askRaw(raw []byte) ([]byte, error) {
	if s.lockedOut() {
		return resp.AppendError(nil, noAuth), nil
	}
	return s.pipes.way.ask(raw)
}

func (s *Session) question(p *upstream.Pipe, raw []byte) ([]byte, error) {
	var got backend.Gathered
	err := p.Ask(&upstream.Request{Cmds: [][]byte{raw}, Sink: &got, Patient: true}, backend.QuestionTime)
	if err = backend.Unanswered(err); err != nil {
		s.noteTrouble(err)
		return nil, err
	}
	return got, nil
}

// askWhere is ask of that node; nil: of any.
func (s *Session) askWhere(n *cluster.Node, args ...string) ([]byte, error) {
	if n == nil {
		return s.ask(args...)
	}
	p, err := n.Upstream().Open(s.srv.ctx, s.ident)
	if err != nil {
		return nil, err
	}
	defer p.Release()
	return s.question(p, resp.AppendCommand(nil, args...))
}

// single is how a client's commands reach one Redis.
type single struct {
	s      *Session
	node   *upstream.Node
	shared *upstream.Pipe // nil: not needed yet
	lane   scriptLane
}

// forward implements way.
func (u *single) forward(big bool) {
	switch {
	case u.s.batch.scripts:
		u.s.forwardScripts(big)
	case big:
		u.forwardBig()
	default:
		u.forwardShared()
	}
}

// ask asks on the shared connection.
func (u *single) ask(raw []byte) ([]byte, error) {
	p, err := u.pipe()
	if err != nil {
		return nil, err
	}
	return u.s.question(p, raw)
}

func (u *single) askAbout(words ...string) ([]byte, error) { return u.s.ask(words...) }

func (u *single) askSlot(_ int, words ...string) ([]byte, error) { return u.s.ask(words...) }

func (u *single) askInfo(args [][]byte) ([]byte, error) { return u.s.askRaw(resp.Command(args)) }

func (u *single) show(ctx context.Context) {
	if u.shared == nil {
		u.shared, _ = u.node.Open(ctx, u.s.ident)
	}
}

// served implements way: to ask on that connection would tell nothing else, and could take for as long as a script does.
func (u *single) served() bool {
	p, err := u.pipe()
	return err == nil && p.Serves()
}

// helloSubscriptions has nothing to do: subscriptions are on the session's own connection.
func (u *single) helloSubscriptions(upstream.Identity) error { return nil }

// dropSubscriptions has nothing to do: they end with the session's own connection.
func (u *single) dropSubscriptions() {}

// returnBig has nothing to do: see bigTraffic.leave.
func (u *single) returnBig() {}

// left has nothing to do: see upstream.Node.
func (u *single) left(*cluster.Node) {}

// leave implements way.
func (u *single) leave() {
	if u.shared != nil {
		u.shared.Release()
		u.shared = nil
	}
	u.lane.leave()
}

func (u *single) forwardShared() {
	p, err := u.pipe()
	u.forwardOver(p, err)
}

// forwardOver sends the run over a pipe whose replies may be gathered; err says why there is none.
func (u *single) forwardOver(p *upstream.Pipe, err error) {
	b := u.s.batch
	b.total = 0
	r := u.s.runRequest(b)
	if err == nil {
		err = p.Do(r)
		u.s.disconnected(err)
	}
	u.s.pipes.big.measure(r.Longest, b.total, len(b.run))
	if err != nil {
		b.truncate(r.Partial)
		u.s.answerFor(err, b.cmds[r.Replied:])
	}
}

// forwardBig sends the run over the private pipe, or over the shared one when there may be no further connection.
func (u *single) forwardBig() {
	b := u.s.batch
	err := u.openBig()
	if backend.TooMany(err) {
		u.forwardShared()
		return
	}
	t := u.s.newStream()
	r := u.s.runRequest(t)
	if err == nil {
		err = u.s.pipes.big.pipe.Do(r)
		u.s.disconnected(err)
		u.s.usesOwn()
	}
	t.finish()
	if t.largest > bigReply {
		u.s.pipes.big.seen()
	}
	if err != nil {
		u.s.pipes.big.drop()
		u.s.answerFor(err, b.cmds[r.Replied:])
	}
}

func (u *single) openBig() (err error) {
	if u.s.pipes.big.pipe != nil {
		return nil
	}
	if err = u.s.refused(); err == nil {
		u.s.pipes.big.pipe, err = u.node.Private(u.s.srv.ctx, u.s.ident)
	}
	return err
}

// scriptLane is a session's way to the quick lane, open from its first quick script on.
type scriptLane struct {
	pipe *upstream.Pipe
	lane *scriptcache.Lane
}

// leave gives the session's way to the quick lane back.
func (w *scriptLane) leave() {
	if w.pipe == nil {
		return
	}
	w.pipe.Release()
	w.lane.Leave()
	*w = scriptLane{}
}

// forwardLane sends a run that has scripts in it, and says how long Redis took. Where Redis is out of reach, or gives no
// further connection, the run goes the way of ordinary commands: it is no worse off then than on one connection.
func (u *single) forwardLane(quick bool) time.Duration {
	main, err := u.pipe()
	if err != nil || !main.Connected() || u.s.mustLogIn() {
		return timed(func() { u.forwardOver(main, err) })
	}
	if quick && u.openLane() && !u.lane.lane.Stuck() {
		return u.forwardQuick()
	}
	id, free := u.s.srv.lanes.Take(u.s.ident)
	if free {
		defer u.s.srv.lanes.GiveBack(id)
		if p, err := u.node.Open(u.s.srv.ctx, id); err == nil {
			defer p.Release()
			return timed(func() { u.forwardOver(p, nil) })
		}
	} else if u.openLane() {
		return u.forwardQuick()
	}
	return timed(func() { u.forwardOver(main, nil) })
}

// openLane opens the quick lane, and says whether it can be used.
func (u *single) openLane() bool {
	if u.lane.pipe == nil {
		lane := u.s.srv.lanes.Join(u.s.ident)
		p, err := u.node.Open(u.s.srv.ctx, lane.ID())
		if err != nil {
			lane.Leave()
			return false
		}
		u.lane = scriptLane{pipe: p, lane: lane}
	}
	return u.lane.pipe.Connected()
}

// forwardQuick sends the run over the quick lane.
func (u *single) forwardQuick() time.Duration {
	return u.lane.lane.Timed(func() { u.forwardOver(u.lane.pipe, nil) })
}

// pipe is the shared pipe of the session's identity, opened when first needed.
func (u *single) pipe() (*upstream.Pipe, error) {
	if u.shared != nil {
		return u.shared, nil
	}
	p, err := u.node.Open(u.s.srv.ctx, u.s.ident)
	if err != nil {
		return nil, err
	}
	u.shared = p
	return p, nil
}

// hello implements way.
func (u *single) hello(id upstream.Identity) (resp.Reply, error) {
	p := u.shared
	if p == nil || id != u.s.ident {
		var err error
		ctx, done := u.s.clientContext()
		p, err = u.node.Open(ctx, id)
		if done(); err != nil {
			return resp.Reply{}, err
		}
	}
	got, err := u.s.question(p, resp.AppendCommand(nil, "HELLO", strconv.Itoa(id.Proto)))
	if line, bad := resp.ErrorLine(got); err == nil && bad {
		err = &upstream.ReplyError{Line: line}
	}
	if err != nil {
		if p != u.shared {
			p.Release()
		}
		return resp.Reply{}, err
	}
	if p != u.shared {
		u.s.identity(id)
		u.leave()
		u.shared = p
	}
	u.s.admit()
	answer, _ := resp.ParseReply(got)
	return answer, nil
}
