package backend

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/scriptcache"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// singlePath is how a client's commands reach one Redis.
type singlePath struct {
	*Forwarder
	node   *upstream.Node
	shared *upstream.Pipe // nil: not needed yet
	lane   scriptLane
}

func (b single) path(f *Forwarder) path { return &singlePath{Forwarder: f, node: b.node} }

// pipe is the shared pipe of the client's identity, opened when first needed.
func (u *singlePath) pipe() (*upstream.Pipe, error) {
	if u.shared != nil {
		return u.shared, nil
	}
	p, err := u.node.Open(u.Context, u.client.Identity())
	if err != nil {
		return nil, err
	}
	u.shared = p
	return p, nil
}

func (u *singlePath) ask(words [][]byte, at Place) ([]byte, error) {
	switch at.kind {
	case apart:
		return u.askApart(resp.Command(words))
	case queued:
		return u.askQueued(u.node, words)
	}
	p, err := u.pipe()
	if err != nil {
		return nil, err
	}
	return u.question(p, resp.Command(words))
}

func (u *singlePath) askKeys(all [][][]byte) (replies [][]byte, err error) {
	p, err := u.pipe()
	if err != nil {
		return nil, err
	}
	raw := make([][]byte, len(all))
	for i, words := range all {
		raw[i] = resp.Command(words)
	}
	said, err := u.question(p, raw...)
	for first, rest := resp.Cut(said); len(first) > 0; first, rest = resp.Cut(rest) {
		replies = append(replies, first)
	}
	if err == nil && len(replies) != len(all) {
		err = &upstream.NotSentError{Cause: errShort}
	}
	return replies, err
}

var errShort = errors.New("fewer replies than questions")

// apartFor is for how long a connection apart is tried while Redis accepts it but does not answer: longer than the 5 s
// of its busy-reply-threshold.
const apartFor = 10 * time.Second

func (u *singlePath) askApart(raw []byte) ([]byte, error) {
	ctx := u.client.Context()
	p, err := u.node.Private(ctx, u.client.Identity())
	// In a script's first seconds Redis answers nobody: SCRIPT KILL must wait for that, and not fail.
	for until := time.Now().Add(apartFor); errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil &&
		time.Now().Before(until); {
		p, err = u.node.Private(ctx, u.client.Identity())
	}
	if err != nil {
		return nil, err
	}
	defer p.Release()
	var got upstream.Gathered
	err = p.Do(&upstream.Request{Cmds: [][]byte{raw}, Sink: &got})
	return got, err
}

func (u *singlePath) askAll(words [][]byte) ([]resp.Reply, error) {
	answer, err := u.ask(words, Place{})
	if err != nil {
		return nil, err
	}
	r, _ := resp.ParseReply(answer)
	r.Raw = answer
	return []resp.Reply{r}, nil
}

func (u *singlePath) instead(*commandtable.Command) func([][]byte) ([]byte, error) { return nil }

func (u *singlePath) show(ctx context.Context) {
	if u.shared == nil {
		u.shared, _ = u.node.Open(ctx, u.client.Identity())
	}
}

func (u *singlePath) leave() {
	if u.shared != nil {
		u.shared.Release()
		u.shared = nil
	}
	u.lane.leave()
}

func (u *singlePath) hello(id upstream.Identity) (resp.Reply, error) {
	p := u.shared
	if p == nil || id != u.client.Identity() {
		var err error
		if p, err = u.node.Open(u.client.Context(), id); err != nil {
			return resp.Reply{}, err
		}
	}
	got, err := u.question(p, resp.AppendCommand(nil, "HELLO", strconv.Itoa(id.Proto)))
	if err == nil {
		err = upstream.ErrorIn(got)
	}
	if err != nil {
		if p != u.shared {
			p.Release()
		}
		return resp.Reply{}, err
	}
	if p != u.shared {
		u.SetIdentity(id)
		u.leave()
		u.shared = p
	}
	answer, _ := resp.ParseReply(got)
	return answer, nil
}

var okReply = resp.AppendSimple(nil, "OK")

// selectDB opens the shared pipe of that database. If there can be none, although Redis has that database, the client
// is in that database all the same: what it sends next, perhaps without waiting for this answer, is refused then, and
// does not run in the former one.
func (u *singlePath) selectDB(id upstream.Identity) ([]byte, error) {
	if id.DB < 0 {
		return nil, &upstream.ReplyError{Line: "ERR DB index is out of range"}
	}
	p, err := u.node.Open(u.Context, id)
	if err != nil && !client.NoFurther(err) {
		return nil, err
	}
	u.SetIdentity(id)
	u.shared = p
	return okReply, nil
}

func (u *singlePath) forward(b *Batch, over way) {
	if over == shared {
		u.forwardShared(b)
		return
	}
	u.forwardPrivate(b, over)
}

func (u *singlePath) forwardShared(b *Batch) {
	p, err := u.pipe()
	u.forwardOver(b, p, err)
}

// forwardOver sends the run over p, and gathers the replies; err says why there is no p.
func (u *singlePath) forwardOver(b *Batch, p *upstream.Pipe, err error) {
	b.Total = 0
	r := u.runRequest(b, b)
	if err == nil {
		err = p.Do(r)
		u.took(r, err)
		u.disconnected(err)
	}
	u.measure(b, r.Longest, r.At, b.Total)
	if err != nil {
		b.Truncate(r.Partial)
		u.fail(b, err, b.cmds[r.Replied:])
	}
}

// forwardPrivate sends the run over a private pipe, which is given back with the replies.
func (u *singlePath) forwardPrivate(b *Batch, over way) {
	t := u.newStream(b)
	r := u.runRequest(b, t)
	p, err := u.node.Private(u.Context, u.client.Identity())
	if err == nil {
		err = p.Do(r)
		p.Release()
		u.took(r, err)
		u.disconnected(err)
	}
	if over == private && cluster.NoConnection(err) {
		u.forwardShared(b)
		return
	}
	t.finish()
	u.measure(b, t.largest, t.at, t.total)
	if err != nil {
		u.fail(b, err, b.cmds[r.Replied:])
	}
}

// scriptLane is a client's use of the quick lane, which its first quick script opens.
type scriptLane struct {
	pipe *upstream.Pipe
	lane *scriptcache.Lane
}

// leave gives the client's use of the quick lane back.
func (w *scriptLane) leave() {
	if w.pipe == nil {
		return
	}
	w.pipe.Release()
	w.lane.Leave()
	*w = scriptLane{}
}

// forwardScripts implements path. If Redis is out of reach, or there can be no further connection, the run goes over
// the connection for ordinary commands.
func (u *singlePath) forwardScripts(b *Batch, quick bool) time.Duration {
	main, err := u.pipe()
	if err != nil || !main.Connected() {
		return timed(func() { u.forwardOver(b, main, err) })
	}
	if quick && u.openLane() && !u.lane.lane.Stuck() {
		return u.forwardQuick(b)
	}
	id, free := u.Lanes.Take(u.client.Identity())
	if free {
		defer u.Lanes.GiveBack(id)
		if p, err := u.node.Open(u.Context, id); err == nil {
			defer p.Release()
			return timed(func() { u.forwardOver(b, p, nil) })
		}
	} else if u.openLane() {
		return u.forwardQuick(b)
	}
	return timed(func() { u.forwardOver(b, main, nil) })
}

// openLane opens the quick lane, and says whether it can be used.
func (u *singlePath) openLane() bool {
	if u.lane.pipe == nil {
		lane := u.Lanes.Join(u.client.Identity())
		p, err := u.node.Open(u.Context, lane.ID())
		if err != nil {
			lane.Leave()
			return false
		}
		u.lane = scriptLane{pipe: p, lane: lane}
	}
	return u.lane.pipe.Connected()
}

// forwardQuick sends the run over the quick lane.
func (u *singlePath) forwardQuick(b *Batch) time.Duration {
	return u.lane.lane.Timed(func() { u.forwardOver(b, u.lane.pipe, nil) })
}

func (u *singlePath) reload(b *Batch, lost lostScripts, send func() time.Duration) {
	shas := lost.shas
	wanted := slices.DeleteFunc(slices.Clone(shas), func(sha string) bool { return sha == "" })
	known := u.load(u.node, "", wanted, lost.seen)
	states := make([]scriptcache.State, len(shas))
	for i, sha := range shas {
		states[i] = known[sha]
	}
	again := sentAgain(states, func(int) (int, bool) { return 0, true }) // one order for all
	if len(again) == 0 || u.client.End.Over() {
		return
	}
	first := again[0]
	from := lost.start
	if first > 0 {
		from += lost.ends[first-1]
	}
	b.Bytes = b.Bytes[:from]
	run, cmds, args := b.run, b.cmds, b.nodes.args
	b.run, b.cmds, b.nodes.args = run[first:], cmds[first:], args[first:]
	send()
	b.run, b.cmds, b.nodes.args = run, cmds, args
}
