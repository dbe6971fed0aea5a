package sharded

import (
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

// do sends a request to the node that has the slot of its key. What was surely not done is sent again: to where a
// redirect says, if the topology names that node, and after a pause if the slot is moving, nobody has it, or the node is
// out of reach. In the end the error is a *upstream.NotSentError.
func (m *masters) do(ctx context.Context, r *request) ([]int64, error) {
	t := m.c.Tries(cluster.Slot([]byte(r.key)))
	t.Until = time.Now().Add(min(r.again, m.c.RetryFor()))
	failures := retry.Backoff{First: 5 * time.Millisecond, Most: 100 * time.Millisecond}
	for {
		sh := m.use(t.Slot(), t.To)
		out, err := []int64(nil), error(&upstream.NotSentError{Cause: lockstore.ErrUnserved})
		if sh != nil {
			out, err = r.sendTo(ctx, sh, t.Ask)
			m.unuse(sh)
		}
		refusal, err := m.refusal(sh, err)
		switch t.After(refusal, time.Now()) {
		case cluster.Stop:
			return out, err
		case cluster.Follow:
			continue
		case cluster.Look:
			m.c.Refresh()
		}
		if !m.host.Sleep(ctx, failures.Next()) {
			return nil, err
		}
	}
}

// refusal reads the error of a request: why it has not run, if that is so, and what the error is to those who wait for it.
func (m *masters) refusal(sh *shard, err error) (cluster.Refusal, error) {
	if upstream.IsNotSent(err) {
		m.c.Refresh() // also for those who ask again by themselves
		return cluster.Unreached, err
	}
	r := m.c.RefusalIn(sh.is, err)
	switch {
	case r.Moving():
		return r, &upstream.NotSentError{Cause: lockstore.ErrMoving}
	case r.OfSlot():
		m.c.Refresh()
		return r, &upstream.NotSentError{Cause: errors.New(upstream.Refused(err).Line)}
	case lockstore.Unknown(err):
		m.c.Refresh()
	}
	return r, err
}
