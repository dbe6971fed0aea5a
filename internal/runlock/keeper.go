package runlock

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
)

// renewal is what became of one RENEW of all locks.
type renewal struct {
	sent time.Time
	err  error
}

// renew renews all locks, in so much time at most.
func (h *holder) renew(ctx context.Context, limit time.Duration) renewal {
	r := renewal{sent: time.Now()}
	_, r.err = h.askProxy(ctx, limit, h.each("RENEW", "PX", millis(h.length(r.sent)))...)
	return r
}

// mostBetween is how long a lock may be lost, as by force, before that is noticed. A RENEW costs little.
const mostBetween = time.Second

// keepLock renews the locks while the command runs, until stop is closed or a lock is lost. It alone uses the proxy
// meanwhile. renewals gets what becomes of each, and is closed at the end.
func (h *holder) keepLock(stop <-chan struct{}, renewals chan<- renewal) {
	defer close(renewals)
	every := min(h.lease/10, mostBetween)
	trouble := false
	for retry.Sleep(context.Background(), every, stop) {
		r := h.renew(context.Background(), h.patience())
		renewals <- r
		switch {
		case isLoss(r.err):
			return
		case r.err != nil && !trouble:
			say("%s: not renewed: %v; trying again", h.names(), r.err)
		}
		trouble = r.err != nil
	}
}
