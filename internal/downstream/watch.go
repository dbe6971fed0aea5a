package downstream

import (
	"errors"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// watchedBytes bounds what a client may pipeline behind a command that waits. A client that sends more is not read from
// until the wait is over; its end is then noticed by keep-alive only.
const watchedBytes = 1 << 20

// Watch makes the client's end be noticed at once although nobody reads its commands: what it sends is kept for later.
// stop ends the watch, and returns when nobody reads any more.
func (r *Reader) Watch() (stop func()) {
	done := make(chan struct{})
	r.setMode(forEnd)
	r.watched.Store(true)
	r.client.Ahead(r.guard.Ahead())
	go r.watch(done)
	return func() {
		r.setMode(forNothing)
		<-done
		r.setMode(forCommands)
	}
}

// Watched says that the client's end will be noticed by whoever reads.
func (r *Reader) Watched() bool { return r.watched.Load() }

// setMode has reads be for something else from now on.
func (r *Reader) setMode(m mode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mode = m; m == forNothing {
		r.setDeadline(past)
	}
}

// watch reads ahead, so as to see the client's end at once; source.Read notes it.
func (r *Reader) watch(done chan<- struct{}) {
	defer close(done)
	defer r.watched.Store(false)
	for {
		err := r.guard.ReadAhead(watchedBytes)
		r.client.Ahead(r.guard.Ahead())
		if err == nil {
			continue
		}
		if errors.Is(err, resp.ErrReadAheadFull) {
			r.gate.log.Debug("a waiting client pipelines too much to be watched", "client", r.unfinished.addr)
		}
		return
	}
}
