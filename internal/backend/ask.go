package backend

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Ask sends one command to a node, on a connection of its own, and returns the
// reply. It gives up when ctx ends.
func Ask(ctx context.Context, n *upstream.Node, id upstream.Identity, words ...string) ([]byte, error) {
	p, err := n.Aside(ctx, id)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, p.Release)
	defer func() {
		if stop() {
			p.Release()
		}
	}()
	var got upstream.Gathered
	err = p.Do(&upstream.Request{Cmds: [][]byte{resp.AppendCommand(nil, words...)}, Sink: &got})
	return got, err
}

// AskAsService sends one command that changes nothing to a node as the service account, over the connection that all
// such questions share. It gives up when ctx ends. Without a reply the error is a *upstream.NotSentError: it is as if
// nothing had been asked.
func (c *Common) AskAsService(ctx context.Context, n *upstream.Node, words ...string) ([]byte, error) {
	var got upstream.Gathered
	err := askShared(ctx, n, c.AsService(), resp.AppendCommand(nil, words...), &got)
	return got, err
}

// askShared is AskAsService for any identity, with the reply to a sink.
func askShared(ctx context.Context, n *upstream.Node, id upstream.Identity, raw []byte, to upstream.Sink) error {
	p, err := n.Open(ctx, id)
	if err != nil {
		return err
	}
	defer p.Release()
	r := &upstream.Request{Cmds: [][]byte{raw}, Sink: to, Patient: true}
	defer context.AfterFunc(ctx, func() { r.End(r.Turn, context.Cause(ctx)) })()
	return notAsked(p.Do(r))
}

// mostHeld bounds what is held of a reply for nobody's account, in bytes: what is in it may be clients' own.
const mostHeld = 16 << 20

type atMost int

func (most atMost) MayHold(n int) bool { return n <= int(most) }

// askWhole asks something in a database as the service account: one Redis, or those nodes of a cluster that facts say.
func (c *Common) askWhole(ctx context.Context, b Backend, db int, words [][]byte,
	facts *cluster.Facts) ([]byte, error) {
	id, raw := c.AsService(), resp.Command(words)
	id.DB = db
	nodes, many := b.(*Clustered)
	if !many {
		got := &counted{holder: atMost(mostHeld)}
		err := askShared(ctx, b.Node(), id, raw, got)
		return got.got, cmp.Or(err, got.err())
	}
	e := nodes.Executor(id, cluster.NewHome()).For(atMost(mostHeld))
	defer e.Close()
	p := cluster.NewPlan(cluster.Command{Raw: raw, Args: words, Facts: facts})
	e.Do(ctx, []*cluster.Plan{p})
	return p.Reply, p.Err
}

// Ping says why a node serves nobody; nil: it answers.
func Ping(ctx context.Context, n *upstream.Node, service upstream.Identity) error {
	service.DB, service.Proto = 0, 2
	reply, err := Ask(ctx, n, service, "PING")
	if err != nil {
		return err
	}
	if line, bad := resp.ErrorLine(reply); bad && !strings.HasPrefix(line, "NOPERM") {
		return errors.New(line) // LOADING, MASTERDOWN
	}
	return nil
}
