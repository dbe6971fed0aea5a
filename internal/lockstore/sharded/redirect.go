package sharded

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

// notAfterMark stands for the not-after in the arguments of a script for a cluster: which node runs it, by whose clock
// the not-after is given, is known only when it is sent. It is random because other arguments come from clients.
func notAfterMark() string { return "not-after " + rand.Text() }

// do sends a script to the node that has the slot of its first key. What was surely not done is sent again: to where a
// redirect says, if the topology names that node, and after a pause if the slot is moving, nobody has it, or the node is
// out of reach. In the end the error is a *upstream.NotSentError.
func (m *masters) do(ctx context.Context, l limits, c node.Call, send sending) ([]int64, error) {
	t := m.c.Tries(cluster.Slot([]byte(c.Keys[0])))
	t.Until = time.Now().Add(min(l.again, m.c.RetryFor()))
	failures := retry.Backoff{First: 5 * time.Millisecond, Most: 100 * time.Millisecond}
	for {
		sh := m.use(t.Slot(), t.To)
		out, err := []int64(nil), error(&upstream.NotSentError{Cause: lockstore.ErrUnserved})
		if sh != nil {
			out, err = m.sendTo(sh, l, c, send, t.Ask)
			m.unuse(sh)
		}
		refusal, err := m.refusal(l, sh, err)
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

// sendTo sends a script to one node. If that got to it too late, its clock is read again.
func (m *masters) sendTo(sh *shard, l limits, c node.Call, send sending, ask bool) (out []int64, err error) {
	if c, err = m.prepare(sh, l, c); err == nil {
		out, err = send(sh, c, ask)
	}
	if err == nil && node.Late(out) {
		_ = m.sampleOf(sh)
	}
	sh.Account.Refused(err)
	return out, err
}

// refusal reads the error of a request: why it has not run, if that is so, and what the error is to those who wait for it.
func (m *masters) refusal(l limits, sh *shard, err error) (cluster.Refusal, error) {
	reply := upstream.Refused(err)
	switch {
	case upstream.IsNotSent(err):
		m.c.Refresh() // also for those who ask again by themselves
		return cluster.Unreached, err
	case lockstore.Unknown(err):
		m.noteLost(l.allow)
		m.c.Refresh()
		return cluster.Refusal{}, err
	case reply == nil:
		return cluster.Refusal{}, err
	}
	r := m.c.Refusal(sh.is, []byte("-"+reply.Line+"\r\n"))
	switch {
	case r.Moving():
		return r, &upstream.NotSentError{Cause: lockstore.ErrMoving}
	case r.OfSlot():
		m.c.Refresh()
		return r, &upstream.NotSentError{Cause: errors.New(reply.Line)}
	}
	return r, err
}

// noteLost remembers that a reply was lost: the request may still be done for so long.
func (m *masters) noteLost(allowed time.Duration) {
	now := m.now() + allowed.Microseconds()
	for last := m.lost.Load(); last < now && !m.lost.CompareAndSwap(last, now); last = m.lost.Load() {
	}
}

// final is when, by the proxy's clock, a request that was to be sent with that not-after can no longer be done: it may
// have been sent later than it was prepared for.
func (m *masters) final(at int64) int64 {
	if at == 0 {
		return 0
	}
	return max(at, m.lost.Load())
}

// prepare completes the call for the shard that it is sent to.
func (m *masters) prepare(sh *shard, l limits, c node.Call) (node.Call, error) {
	c = c.Guarded()
	if slices.Contains(c.Args, m.verb) {
		c.Args = withWord(c.Args, m.verb, m.verbOf(sh))
	}
	if !slices.Contains(c.Args, m.mark) {
		return c, nil
	}
	if _, known := sh.Clock.Now(); !known {
		if err := m.sampleOf(sh); err != nil {
			return c, err
		}
	}
	now, _ := sh.Clock.Now()
	c.Args = withWord(c.Args, m.mark, node.NotAfter(now+l.allow.Microseconds()))
	return c, nil
}

// withWord is a copy of the arguments in which that word is in the places of the placeholder.
func withWord(args []string, placeholder, word string) []string {
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == placeholder {
			args[i] = word
		}
	}
	return args
}
