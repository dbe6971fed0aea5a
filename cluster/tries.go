package cluster

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
	"github.com/lockproxy/lockproxy/upstream"
)

// triesPause is the time before a request that has not run is sent to the same node again.
const triesPause = 20 * time.Millisecond

// RefusalIn is the Refusal that err is, if it is an error that from gave.
func (c *Cluster) RefusalIn(from *Node, err error) Refusal {
	if refused := upstream.Refused(err); refused != nil {
		return c.Refusal(from, []byte("-"+refused.Line+"\r\n"))
	}
	return Refusal{}
}

// Tries are those of one request, which goes from node to node until one runs it: for requests that no Executor
// sends, such as those on dedicated connections. Where it goes next is decided by After, without I/O.
type Tries struct {
	Until time.Time // nothing is tried again after that; redirects are followed all the same, at once
	To    *Node     // the node that a redirect has named for the next try; nil: it is for the slot's owner, whoever that is by then
	Ask   bool      // ASKING goes ahead

	c        *Cluster
	slot     int // of the request's keys
	followed int // redirects, one after the other
}

// Tries begins those of a request whose keys are in slot, below 0 if it has none. They end after Options.RetryFor.
func (c *Cluster) Tries(slot int) *Tries {
	return &Tries{c: c, slot: slot, Until: time.Now().Add(c.opts.RetryFor)}
}

// Waited begins a new series of tries if Redis has held the last one back, which was sent at that time, for more than a second: the refusal is then
// about a change that came after it was sent.
func (t *Tries) Waited(sent time.Time) {
	if time.Since(sent) > time.Second {
		t.Until = time.Now().Add(t.c.opts.RetryFor)
	}
}

// Slot is that of the request's keys.
func (t *Tries) Slot() int { return t.slot }

// After decides what becomes of the request when a try has ended, at the time now, with that Refusal.
func (t *Tries) After(r Refusal, now time.Time) Step {
	t.To, t.Ask = nil, false
	switch step := r.step(t.slot, t.followed); {
	case step == Follow:
		t.followed++
		t.To, t.Ask = r.to, r.kind == asked
		return Follow
	case now.Before(t.Until):
		t.followed = 0
		return step
	}
	return Stop
}

// Again says whether there is to be another try after one that has ended with that Refusal, and returns when its
// time has come. The end of ctx ends the tries.
func (t *Tries) Again(ctx context.Context, r Refusal) bool {
	switch t.After(r, time.Now()) {
	case Stop:
		return false
	case Look:
		t.c.Refreshed(ctx)
		fallthrough
	case Pause:
		retry.Sleep(ctx, triesPause, t.c.ctx.Done())
	}
	return ctx.Err() == nil && t.c.ctx.Err() == nil
}
