package session

import (
	"log/slog"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/loglimit"
)

// runOut gathers for the log which clients were closed, or given up, although they held locks, which then run out.
// Thousands may be at once.
type runOut struct {
	mu             sync.Mutex // a leaf
	clients, locks int        // not told yet
	addr, why      string     // of the last one
	quiet          time.Time  // nothing is told before
}

const (
	runOutEvery = time.Second
	runOutLines = 20 // more than come in ten seconds: each has sums that would be lost with it
)

// noteClient notes a client that had so many locks.
func (r *runOut) noteClient(locks int, addr, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients++
	r.locks += locks
	r.addr, r.why = addr, why
}

// takeSums returns what is to be told at now, and begins anew; clients is 0 when nothing is.
func (r *runOut) takeSums(now time.Time) (clients, locks int, addr, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clients == 0 || now.Before(r.quiet) {
		return 0, 0, "", ""
	}
	clients, locks = r.clients, r.locks
	r.clients, r.locks, r.quiet = 0, 0, now.Add(runOutEvery)
	return clients, locks, r.addr, r.why
}

// logSums writes into the log what has been added, at most one line in runOutEvery.
func (r *runOut) logSums(to *slog.Logger, now time.Time) {
	if clients, locks, addr, why := r.takeSums(now); clients > 0 {
		loglimit.Most(to, runOutLines).Warn("clients were closed that held locks, which end with their leases",
			"clients", clients, "locks", locks, "last", addr, "why", why)
	}
}
