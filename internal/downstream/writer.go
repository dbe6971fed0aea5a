package downstream

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/proto/resp"
)

var (
	errOver   = errors.New("downstream: connection is over")
	errOutput = errors.New("output buffer limit")
)

// Writer is how replies and pushes go out: as whole frames, each by one writer, with the deadlines and limits of the
// moment. Any goroutine may call its methods.
type Writer struct {
	to     *stream
	end    *End
	client Client
	bounds *atomic.Pointer[Bounds]
	drop   func(why string)

	frames sync.Mutex // held from the first to the last byte of whole frames: see frames.go

	mu     sync.Mutex // guards what follows up to last
	held   int        // bytes that the write in progress, and those behind it, have yet to write; 0: nobody writes
	since  time.Time  // when the piece that is being written was begun
	due    time.Time  // the deadline the socket has now
	last   time.Time  // of EndBy
	excess excess

	gathered       Account     // used by the client's goroutine or, while that waits for a pipe, by the pipe's reader
	unacknowledged atomic.Bool // something was written since the last look at its acknowledgement
	dropped        atomic.Bool // over, and nothing more is to be written
}

// write writes p. behind is how many more bytes are held for the client, which count for the output limits. It writes
// in pieces, each with its own deadline, so that a client that reads a long reply slowly is not taken for one that does
// not read. frames is held.
func (w *Writer) write(p []byte, behind int) (written int, err error) {
	for written < len(p) && err == nil {
		if err = w.beforePiece(len(p) - written + behind); err != nil {
			break
		}
		var n int
		w.noteUnacknowledged() // for a write that blocks
		n, err = w.to.Write(p[written:min(len(p), written+resp.Long)])
		written += n
		w.noteUnacknowledged()
		if n > resp.Long/2 {
			runtime.Gosched() // a client that takes all at once is not written to for longer than others wait
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && (n > 0 || w.exceeds()) {
			err = nil // beforePiece sets the next deadline, or drops the client
		}
	}
	w.mu.Lock()
	w.held = 0
	if behind == 0 {
		w.excess = excess{}
	}
	w.mu.Unlock()
	if err != nil {
		w.end.Cut(w.to.writeEnd(err))
	}
	return written, err
}

func (w *Writer) noteUnacknowledged() {
	if !w.unacknowledged.Load() {
		w.unacknowledged.Store(true)
	}
}

// beforePiece sets the deadline for the next piece while held bytes are not written. An error says that nothing more is to be
// written.
func (w *Writer) beforePiece(held int) error {
	w.mu.Lock()
	w.held, w.since = held, time.Now()
	over := w.arm(w.since, w.due)
	w.mu.Unlock()
	if over {
		w.overLimit()
	}
	if w.dropped.Load() {
		return errOver
	}
	return nil
}

// renewDeadline sets the deadline of the write in progress anew: other bounds hold, or the client has shown that it is not
// idle.
func (w *Writer) renewDeadline() {
	w.mu.Lock()
	over := w.held > 0 && w.arm(time.Now(), time.Time{})
	w.mu.Unlock()
	if over {
		w.overLimit()
	}
}

// arm sets the deadline for what is held, but not when it says that this is over the limit. was is the deadline until
// now. As in Redis a client that takes nothing is not cut off for that alone, unless there is an idle time-out. mu is
// held.
func (w *Writer) arm(now, was time.Time) (over bool) {
	due, over := w.excess.judge(w.limit(), w.held, now)
	if over {
		return true
	}
	if idle := w.bounds.Load().IdleTimeout; idle > 0 && !w.client.MayIdle() {
		if left := was.Sub(now); left < idle/2 || left > idle { // a deadline is not set for each piece
			was = now.Add(idle)
		}
		due = earlier(due, was)
	}
	w.setDeadline(earlier(due, w.last))
	return false
}

// setDeadline is called with mu held.
func (w *Writer) setDeadline(due time.Time) {
	if due.Equal(w.due) {
		return
	}
	w.due = due
	w.to.SetWriteDeadline(due)
}

// limit is that of the client's present class.
func (w *Writer) limit() OutputLimit {
	if w.client.Subscribed() {
		return w.bounds.Load().PubSubOutput
	}
	return w.bounds.Load().NormalOutput
}

// exceeds says whether more than the limit allows has been held for too long.
func (w *Writer) exceeds() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, over := w.excess.judge(w.limit(), w.held, time.Now())
	return over
}

// overLimit drops a client that is over its output limit.
func (w *Writer) overLimit() {
	if w.dropped.CompareAndSwap(false, true) {
		telemetry.OutputDropped.Add(1)
		w.drop(errOutput.Error())
	}
}

// stop ends the write in progress, and has nothing more written. It waits for nobody.
func (w *Writer) stop() {
	w.dropped.Store(true)
	w.EndBy(past)
}

// EndBy is the deadline of all that is still written.
func (w *Writer) EndBy(due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = due
	w.setDeadline(earlier(w.due, due))
}

// waits says whether a write to the client has waited since before.
func (w *Writer) waits(before time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held > 0 && !w.since.After(before)
}

// MayGather says whether held bytes of replies may be held for the client, which is dropped if it may not: by the
// output limit, or by the bound for all clients together. It runs in the reader of a shared pipe and blocks on nobody.
func (w *Writer) MayGather(held int) bool {
	if held > freeBytes {
		if w.limit().above(held) {
			w.overLimit()
		}
		w.gathered.Set(held)
	}
	return !w.dropped.Load()
}

// Gathered notes how many bytes of replies are held for the client now.
func (w *Writer) Gathered(held int) { w.gathered.Set(held) }

// NewAccount counts what is kept for replies that are yet to come, in --max-reply-memory.
func (w *Writer) NewAccount() Account { return w.gathered.another() }

// Unacknowledged says that something was written to the client that may not have reached it.
func (w *Writer) Unacknowledged() bool { return w.unacknowledged.Load() }

// silentFor says for how long the client has shown no sign of life, though something that was written to it has yet to
// reach it; 0: it has shown one, or need not. A writer sets unacknowledged after each write, so that clearing it first
// forgets none.
func (w *Writer) silentFor() time.Duration {
	w.unacknowledged.Store(false)
	pending, silent := unacknowledged(tcpOf(w.to.Conn))
	if !pending {
		return 0
	}
	w.unacknowledged.Store(true)
	return silent
}
