package backend

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// singlePath is how a client's commands reach one Redis.
type singlePath struct {
	*Forwarder
	node *upstream.Node
	open [private]*upstream.Pipe // the pipes that clients share, by way; nil: not needed yet
}

func (b single) path(f *Forwarder) path { return &singlePath{Forwarder: f, node: b.node} }

// pipe is the pipe that the clients of the client's identity share for that way, opened when first needed.
func (u *singlePath) pipe(over way) (*upstream.Pipe, error) {
	if u.open[over] != nil {
		return u.open[over], nil
	}
	p, err := u.node.Open(u.Context, over.as(u.client.Identity()))
	switch {
	case err != nil:
		return nil, err
	case p == u.open[shared]: // there is none of its own at the moment
		p.Release()
	default:
		u.open[over] = p
	}
	return p, nil
}

func (u *singlePath) Ask(words [][]byte, at Destination) ([]byte, error) {
	switch at.kind {
	case apart:
		return u.askApart(resp.Command(words))
	case queued:
		return u.askQueued(u.node, words)
	}
	p, err := u.pipe(shared)
	if err != nil {
		return nil, err
	}
	return u.question(p, resp.Command(words))
}

func (u *singlePath) AskKeys(all [][][]byte) (replies [][]byte, err error) {
	p, err := u.pipe(shared)
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

func (u *singlePath) AskAll(words [][]byte) ([]resp.Reply, error) {
	answer, err := u.Ask(words, Destination{})
	if err != nil {
		return nil, err
	}
	r, _ := resp.ParseReply(answer)
	r.Raw = answer
	return []resp.Reply{r}, nil
}

func (u *singlePath) Show(ctx context.Context) {
	if u.open[shared] == nil {
		u.open[shared], _ = u.node.Open(ctx, u.client.Identity())
	}
}

func (u *singlePath) Leave() {
	for over, p := range u.open {
		if p != nil {
			p.Release()
			u.open[over] = nil
		}
	}
}

func (u *singlePath) Hello(id upstream.Identity) (resp.Reply, error) {
	p, err := u.node.Open(u.client.Context(), id)
	if err != nil {
		return resp.Reply{}, err
	}
	got, err := u.question(p, resp.AppendCommand(nil, "HELLO", strconv.Itoa(id.Proto)))
	if err == nil {
		err = upstream.ErrorIn(got)
	}
	if err != nil {
		p.Release()
		return resp.Reply{}, err
	}
	u.SetIdentity(id)
	u.Leave()
	u.open[shared] = p
	answer, _ := resp.ParseReply(got)
	return answer, nil
}

var okReply = resp.AppendSimple(nil, "OK")

// SelectDB opens the shared pipe of that database. If there can be none, although Redis has that database, the client
// is in that database all the same: what it sends next, perhaps without waiting for this answer, is refused then, and
// does not run in the former one.
func (u *singlePath) SelectDB(id upstream.Identity) ([]byte, error) {
	if id.DB < 0 {
		return nil, &upstream.ReplyError{Line: "ERR DB index is out of range"}
	}
	p, err := u.node.Open(u.Context, id)
	if err != nil && !client.NoFurther(err) {
		return nil, err
	}
	u.SetIdentity(id)
	u.open[shared] = p
	return okReply, nil
}

func (u *singlePath) forward(b *Batch, over way) {
	if over.owned() {
		u.forwardPrivate(b, over)
		return
	}
	u.forwardShared(b, over)
}

// forwardShared sends the run over a pipe that clients share, and gathers the replies.
func (u *singlePath) forwardShared(b *Batch, over way) {
	b.Total = 0
	r := u.runRequest(b, b)
	p, err := u.pipe(over)
	if err == nil {
		err = p.Do(r)
		u.took(r, err)
		u.disconnected(err)
	}
	if over.optional() && cluster.NoConnection(err) {
		u.forwardShared(b, shared)
		return
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
	p, err := u.node.Private(u.Context, over.as(u.client.Identity()))
	if err == nil {
		err = p.Do(r)
		p.Release()
		u.took(r, err)
		u.disconnected(err)
	}
	if over.optional() && cluster.NoConnection(err) {
		u.forwardShared(b, shared)
		return
	}
	t.finish()
	u.measure(b, t.longest, t.at, t.total)
	if err != nil {
		u.fail(b, err, b.cmds[r.Replied:])
	}
}
