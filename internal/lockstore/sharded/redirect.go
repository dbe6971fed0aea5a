package sharded

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
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

// maxHops is how many redirects one request follows without a pause. Nodes that disagree send it round in circles.
const maxHops = 5

// do sends a request to the node that has the key's slot. What was surely not done is sent again: to where a redirect
// says, if the topology names that node, and after a pause if the slot is moving, nobody has it, or the node is out of
// reach. In the end the error is a *upstream.NotSentError.
func (m *masters) do(ctx context.Context, l limits, key string, send func(sh *shard, ask bool) error) error {
	slot := cluster.Slot([]byte(key))
	giveUp := time.Now().Add(min(l.again, m.c.RetryFor()))
	var to *cluster.Node
	ask, hops := false, 0
	for failures := (retry.Backoff{First: 5 * time.Millisecond, Most: 100 * time.Millisecond}); ; {
		sh := m.use(slot, to)
		err := error(&upstream.NotSentError{Cause: lockstore.ErrUnserved})
		if sh != nil {
			err = send(sh, ask)
			sh.Account.Refused(err)
			m.unuse(sh)
		}
		var again bool
		if to, ask, again, err = m.redirected(l, slot, sh, err); !again {
			return err
		}
		if hops++; to != nil && hops < maxHops {
			continue
		}
		if time.Now().After(giveUp) || ctx.Err() != nil || !m.host.Sleep(context.Background(), failures.Next()) {
			return err
		}
	}
}

// redirected says whether a request is to be sent again: to the node to (nil: whoever has the slot by then), after
// ASKING if ask. out is its error.
func (m *masters) redirected(l limits, slot int, sh *shard, err error) (to *cluster.Node, ask, again bool, out error) {
	var reply *upstream.ReplyError
	var notSent *upstream.NotSentError
	switch {
	case errors.As(err, &notSent):
		m.c.Refresh()
		return nil, false, true, err
	case lockstore.Unknown(err):
		m.noteLost(l.allow)
		m.c.Refresh()
		return nil, false, false, err
	case !errors.As(err, &reply):
		return nil, false, false, err
	}
	to, ask, again = m.c.Redirect([]byte("-"+reply.Line+"\r\n"), slot, sh.is)
	if again {
		return to, ask, true, &upstream.NotSentError{Cause: lockstore.ErrMoving}
	}
	switch code, _, _ := strings.Cut(reply.Line, " "); code {
	case "TRYAGAIN":
		return nil, false, true, &upstream.NotSentError{Cause: lockstore.ErrMoving}
	case "CLUSTERDOWN":
		m.c.Refresh()
		return nil, false, true, &upstream.NotSentError{Cause: errors.New(reply.Line)}
	}
	return nil, false, false, err
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
