package runlock

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
)

// keeper renews the locks while the command runs. It alone uses the holder's proxy meanwhile.
type keeper struct {
	h        *holder
	stop     chan struct{} // closed when it is to end
	renewals chan renewal  // what becomes of each; closed at its end
}

// renewal is what became of one RENEW of all locks.
type renewal struct {
	sent time.Time
	err  error
}

// mostBetween is how long a lock may be lost, as by force, before that is noticed. A RENEW costs little.
const mostBetween = time.Second

// keep renews until it is to stop, or a lock is lost.
func (k *keeper) keep() {
	defer close(k.renewals)
	every := min(k.h.lease/10, mostBetween)
	trouble := false
	for retry.Sleep(context.Background(), every, k.stop) {
		r := renewal{sent: time.Now()}
		_, r.err = k.h.ask(context.Background(), k.h.patience(), k.h.each("RENEW", "PX", millis(k.h.lease))...)
		k.renewals <- r
		switch {
		case isLoss(r.err):
			return
		case r.err != nil && !trouble:
			say("%s: not renewed: %v; trying again", k.h.names(), r.err)
		}
		trouble = r.err != nil
	}
}
