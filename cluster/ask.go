package cluster

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// askTimeout is how long one node may take to answer a question of the proxy's own.
const askTimeout = time.Second

var errSlow = errors.New("the node did not answer in time")

var asking = resp.AppendCommand(nil, "ASKING")

// account is the proxy's own identity, for questions about the cluster.
func (c *Cluster) account() upstream.Identity {
	id := c.target.Node.Service()
	id.For = upstream.Questions
	return id
}

// ask asks a node, which need not be of the topology, as the service account, in RESP2, over a new connection.
func (c *Cluster) ask(ctx context.Context, up *upstream.Node, cmds ...[]string) ([]resp.Reply, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, errSlow)
	defer cancel()
	pipe, err := up.Aside(ctx, c.account())
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, pipe.Release) // a Do under way then ends
	defer func() {
		if stop() {
			pipe.Release()
		}
	}()
	var raw [][]byte
	for _, cmd := range cmds {
		raw = append(raw, resp.AppendCommand(nil, cmd...))
	}
	var got upstream.Gathered
	if err = pipe.Do(&upstream.Request{Cmds: raw, Sink: &got}); err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	return takeApart(got)
}

// askShared sends commands over the connection to a node that all such questions share, and returns the last one's
// reply.
func (c *Cluster) askShared(ctx context.Context, node *Node, cmds ...[]byte) (last resp.Reply, err error) {
	p, err := node.up.Open(ctx, c.account())
	if err != nil {
		return last, err
	}
	defer p.Release()
	got, err := p.Ask(&upstream.Request{Cmds: cmds}, askTimeout)
	if err != nil {
		return last, &upstream.NotSentError{Cause: err} // of the client's command nothing was
	}
	replies, err := takeApart(got)
	if err != nil {
		return last, err
	}
	return replies[len(replies)-1], nil
}

func takeApart(got []byte) (replies []resp.Reply, err error) {
	for len(got) > 0 {
		v, ok := resp.ParseReply(got)
		if !ok {
			return nil, errNoTopology
		}
		replies = append(replies, v)
		got = got[len(v.Raw):]
	}
	return replies, nil
}
