package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

const (
	// slowReply is how long replies may take before the topology is looked at: a node that hangs is closed when the
	// others say that it has failed, and its clients are then told.
	slowReply = 500 * time.Millisecond
	// leftReply is how long replies are waited for, at least, after the client has gone, so that the outcome of the
	// commands is known.
	leftReply = time.Second
)

// replyWait is the wait for a round's replies, which a timer may end.
type replyWait struct {
	c     *Cluster
	timer *time.Timer
	every time.Duration // between two looks

	mu      sync.Mutex // guards all below; a leaf but for links and the cluster's refresher
	armed   bool       // the timer runs: it is not stopped at the end of a round, the next one mostly comes soon
	turn    uint64     // number of the last round
	ctx     context.Context
	began   time.Time
	batches []*batch  // that are waited for; none: the round is over
	seen    *Snapshot // by which they were sent
}

// init readies the wait of a new executor.
func (w *replyWait) init(c *Cluster) {
	w.c, w.every = c, min(slowReply, max(c.opts.Timeout/4, time.Millisecond))
	w.timer = time.AfterFunc(time.Hour, w.look)
	w.timer.Stop()
}

// stop stops the timer until the next round.
func (w *replyWait) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.armed = false
}

// begin begins the wait for a round.
func (w *replyWait) begin(ctx context.Context, batches []*batch, s *Snapshot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn++
	w.ctx, w.began, w.batches, w.seen = ctx, time.Now(), batches, s
	for _, b := range batches {
		b.req.Turn = w.turn
	}
	if !w.armed {
		w.armed = true
		w.timer.Reset(w.every)
	}
}

// end ends it: the outcome of each batch is known.
func (w *replyWait) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.batches = nil
}

// look runs, on a timer's goroutine, time and again while a round is waited for.
func (w *replyWait) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed = len(w.batches) > 0; !w.armed {
		return
	}
	next := w.every - w.waited(nil)
	if next <= 0 { // else the timer was set by a round before
		for _, b := range w.batches {
			w.lookAt(b)
		}
		next = w.every
	}
	w.timer.Reset(next)
}

// waited is how long the nodes, or that of one batch, have kept the executor waiting. mu is held.
func (w *replyWait) waited(b *batch) time.Duration {
	waited := time.Since(w.began)
	if b != nil {
		waited = min(waited, b.req.Quiet()) // else it may be the client that is slow
	}
	return waited
}

// lookAt ends the wait for a batch that has taken too long. mu is held.
func (w *replyWait) lookAt(b *batch) {
	waited := w.waited(b)
	if waited < w.every {
		return
	}
	w.c.Refresh()
	if cause := w.overdue(b, waited); cause != nil {
		b.req.End(w.turn, cause)
	}
}

// overdue is why the wait for a batch ends: nobody wants the replies any more, they have taken too long, or another
// node may give them sooner; nil: it goes on. mu is held.
func (w *replyWait) overdue(b *batch, waited time.Duration) error {
	node := b.link.node
	switch {
	case waited >= leftReply && w.ctx.Err() != nil:
		return upstream.ErrLeft
	case waited >= w.c.opts.Timeout:
		return upstream.ErrTimeout
	case len(w.seen.Masters) > 1 && b.movable():
		return upstream.ErrSlow
	case w.seen.passable(node) && b.dispensable():
		return upstream.ErrSlow
	}
	return nil
}
