package backend

import (
	"context"

	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Ask asks a node something on a connection of its own, until ctx ends.
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
	var got Gathered
	err = p.Do(&upstream.Request{Cmds: [][]byte{resp.AppendCommand(nil, words...)}, Sink: &got})
	return got, err
}

// Gathered is a sink for one reply.
type Gathered []byte

// Reply implements upstream.Sink.
func (g *Gathered) Reply(p []byte) { *g = append(*g, p...) }
