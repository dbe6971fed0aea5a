// Package logqueue writes lines to somebody who may not read them: a terminal at which Ctrl-S was typed, a pipe that is full. Who writes
// a line never waits for that reader. Lines that there is no room for are dropped, and counted.
package logqueue

import (
	"bytes"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Usual is how many bytes of a log's lines may wait.
const Usual = 256 << 10

// Queue is the lines that wait to be written. It is an io.Writer for whole lines, which any goroutine may write.
type Queue struct {
	most    int
	to      io.Writer
	dropped func(lines int) []byte
	wake    chan struct{} // has room for one
	done    chan struct{} // closed when all is written after Close

	mu      sync.Mutex
	waiting [][]byte // guarded by mu, as is what follows
	size    int      // bytes of waiting
	missed  int      // lines that found no room since waiting was last taken
	closed  bool
}

// New returns a queue whose lines are written to to; so many bytes may wait. dropped makes the line that says how many were dropped, once
// one can be written again.
func New(to io.Writer, most int, dropped func(lines int) []byte) *Queue {
	q := &Queue{most: most, to: to, dropped: dropped, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go q.write()
	return q
}

// Write takes lines, and does not wait. They are all of p, and the error is always nil: nobody could do anything about it.
func (q *Queue) Write(p []byte) (int, error) {
	q.mu.Lock()
	if q.missed > 0 || q.closed || q.size+len(p) > q.most { // after one that was dropped all are, so that the rest stays in order
		q.missed += linesIn(p)
	} else {
		q.waiting = append(q.waiting, bytes.Clone(p))
		q.size += len(p)
	}
	q.mu.Unlock()
	q.wakeUp()
	return len(p), nil
}

// Close has the lines that wait written, for at most so long, and drops those that come later. Behind a reader who does not read the
// goroutine that writes is left.
func (q *Queue) Close(within time.Duration) {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.wakeUp()
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-q.done:
	case <-late.C:
	}
}

func linesIn(p []byte) int { return bytes.Count(p, []byte("\n")) }

func (q *Queue) wakeUp() {
	select {
	case q.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// write writes what waits until the queue is closed. New starts it.
func (q *Queue) write() {
	defer close(q.done)
	lost := 0 // lines of which nobody has been told
	for range q.wake {
		lines, missed, closed := q.takeLines()
		for _, line := range lines {
			lost = q.tellLost(lost)
			if n, err := q.to.Write(line); err != nil {
				lost += count(linesIn(line[n:]))
			}
		}
		if lost = q.tellLost(lost + count(missed)); closed {
			return
		}
	}
}

// Dropped is how many lines all queues have lost.
var Dropped atomic.Int64

// count adds lines that were lost.
func count(lines int) int {
	Dropped.Add(int64(lines))
	return lines
}

// tellLost says that lines were lost, and returns how many are still to be told.
func (q *Queue) tellLost(lost int) int {
	if lost == 0 {
		return 0
	}
	if _, err := q.to.Write(q.dropped(lost)); err != nil {
		return lost
	}
	return 0
}

func (q *Queue) takeLines() (lines [][]byte, missed int, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines, missed = q.waiting, q.missed
	q.waiting, q.size, q.missed = nil, 0, 0
	return lines, missed, q.closed
}

// OutliveReader has a write to standard error fail when its reader has gone, which by Go's default ends the process. A program that
// is started gets SIGPIPE as ever: it would not if the signal was ignored.
func OutliveReader() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
