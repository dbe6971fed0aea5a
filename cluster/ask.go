package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// askTimeout is how long one node may take to answer a question of the proxy's own.
const askTimeout = time.Second

var errSlow = errors.New("the node did not answer in time")

var (
	asking   = resp.AppendCommand(nil, "ASKING")
	askRole  = resp.AppendCommand(nil, "ROLE")
	askNodes = resp.AppendCommand(nil, "CLUSTER", "NODES")
)

// account is the proxy's own identity, for questions about the cluster.
func (c *Cluster) account() upstream.Identity {
	id := c.target.Node.Service()
	id.For = upstream.Questions
	return id
}

// asker asks a node as the service account, in RESP2, over a connection that nothing else uses. One goroutine at a
// time uses it.
type asker struct {
	pipe *upstream.Pipe // nil: none yet
}

// ask sends commands and returns the replies.
func (a *asker) ask(ctx context.Context, node *upstream.Node, as upstream.Identity, cmds ...[]byte) (replies []resp.Reply, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, errSlow)
	defer cancel()
	if a.pipe == nil {
		if a.pipe, err = node.Aside(ctx, as); err != nil {
			a.pipe = nil
			return nil, err
		}
	}
	stop := context.AfterFunc(ctx, a.pipe.Release) // a Do under way then ends
	var got upstream.Gathered
	err = a.pipe.Do(&upstream.Request{Cmds: cmds, Sink: &got})
	if !stop() {
		a.pipe = nil
		return nil, context.Cause(ctx)
	}
	if err == nil {
		replies, err = takeApart(got)
	}
	if err != nil {
		a.close()
	}
	return replies, err
}

// close gives the connection back.
func (a *asker) close() {
	if a.pipe != nil {
		a.pipe.Release()
		a.pipe = nil
	}
}

// ask asks a node, which need not be of the topology, over a new connection.
func (c *Cluster) ask(ctx context.Context, up *upstream.Node, cmds ...[]string) ([]resp.Reply, error) {
	var a asker
	defer a.close()
	var raw [][]byte
	for _, cmd := range cmds {
		raw = append(raw, resp.AppendCommand(nil, cmd...))
	}
	return a.ask(ctx, up, c.account(), raw...)
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
