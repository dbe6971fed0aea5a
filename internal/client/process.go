package client

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
)

// Process is what the clients of a process share.
type Process struct {
	Context context.Context // ends when the last clients are cut off
	Log     *slog.Logger
	Writes  Writes
	Relearn chan struct{} // what is known of Redis is asked again when something comes here
}

// LearnAgain has Redis be asked again for its commands and settings: another one may have taken its place. It never
// blocks.
func (p *Process) LearnAgain() { retry.Wake(p.Relearn) }

// Writes is what holds up all clients' writes in Redis. Any goroutine may call its methods.
type Writes struct {
	until    atomic.Int64 // unix nanoseconds until which writes are paused, as far as is known; 0: they are not
	shutting atomic.Int64 // SHUTDOWNs that Redis has not answered yet
}

// Pause notes that Redis pauses writes; as in Redis, a shorter pause does not shorten the present one.
func (w *Writes) Pause(d time.Duration) {
	until := time.Now().Add(d).UnixNano()
	for old := w.until.Load(); d > 0 && until > old; old = w.until.Load() {
		if w.until.CompareAndSwap(old, until) {
			return
		}
	}
}

// Resume notes that Redis pauses writes no longer.
func (w *Writes) Resume() { w.until.Store(0) }

// Shutting notes that so many more SHUTDOWNs are not answered yet.
func (w *Writes) Shutting(more int) { w.shutting.Add(int64(more)) }

// Paused says that Redis holds up writes, so that no client's commands may wait behind those of another: a client of
// this proxy has paused writes until later than now, or has sent a SHUTDOWN that is not answered yet.
func (w *Writes) Paused() bool {
	if w.shutting.Load() > 0 {
		return true
	}
	until := w.until.Load()
	return until != 0 && time.Now().UnixNano() < until
}
