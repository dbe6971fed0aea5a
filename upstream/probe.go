package upstream

import (
	"context"
	"time"
)

// Asker asks a Redis again and again, over a connection of its own that is kept from one question to the next. One
// goroutine at a time may use it.
type Asker struct {
	connect func(context.Context) (*termConn, error)
	conn    *termConn // nil: none
}

// NewAsker returns an Asker that asks as t's account, and has that time for each connection.
func NewAsker(t Target, timeout time.Duration) *Asker {
	return &Asker{connect: func(ctx context.Context) (*termConn, error) {
		return connect(ctx, t, t.Service(), timeout)
	}}
}

// Ask returns Redis' reply, which may be an error of Redis', to a question that changes nothing. It waits until ctx
// ends. If Redis has closed the idle connection, the question goes over a new one. The errors are those of the
// connection, and Redis' refusal of it.
func (a *Asker) Ask(ctx context.Context, words ...string) ([]byte, error) {
	if a.conn != nil {
		reply, err := a.over(ctx, words)
		if (Attempt{err, true, timeLeft(ctx)}).Outcome() != SendAgain {
			return reply, err
		}
	}
	c, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	a.conn = c.asOwn()
	return a.over(ctx, words)
}

func (a *Asker) over(ctx context.Context, words []string) ([]byte, error) {
	reply, err := ask(ctx, a.conn, time.Time{}, words...)
	if err != nil {
		a.Close()
	}
	return reply, err
}

// Close closes the connection. The next question makes another one.
func (a *Asker) Close() {
	a.conn.Close()
	a.conn = nil
}

// Probe asks a Redis again and again whether it answers. Its connection never authenticates, and serves nobody else:
// whatever Redis says there is an answer.
type Probe struct{ asker Asker }

// Probe returns a Probe of the node. Close gives its connection back.
func (n *Node) Probe() *Probe {
	return &Probe{Asker{connect: func(ctx context.Context) (*termConn, error) {
		return dialTarget(ctx, n.target, n.opts.DialTimeout)
	}}}
}

// Ask returns nil once Redis has answered. It waits until ctx ends, or the connection is lost; a new one is given as
// long as any other.
func (p *Probe) Ask(ctx context.Context) error {
	_, err := p.asker.Ask(ctx, "PING")
	return err
}

// Close closes the connection.
func (p *Probe) Close() { p.asker.Close() }
