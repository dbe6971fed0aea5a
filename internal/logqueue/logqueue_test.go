package logqueue

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// reader takes lines when it is let, and fails while broken is set.
type reader struct {
	mu     sync.Mutex // held by a test: nothing can be written
	text   strings.Builder
	broken bool
}

func (r *reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken {
		return 0, errors.New("nobody reads")
	}
	return r.text.Write(p)
}

func dropped(lines int) []byte { return fmt.Appendf(nil, "dropped %d\n", lines) }

// stuck is a reader that reads nothing until it is told to.
type stuck struct {
	goOn chan struct{}
	reader
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.goOn
	return s.reader.Write(p)
}

// Nobody waits for a reader that hangs. When it reads again it gets what there was room for, in order, and hears how much there was not.
func TestQueueBehindAReaderThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{goOn: make(chan struct{})}
		q := New(s, Usual, dropped)
		line := strings.Repeat("x", Usual/4-1) + "\n"
		io.WriteString(q, "first\n")
		synctest.Wait() // that one is being written
		for range 6 {
			io.WriteString(q, line)
		}
		io.WriteString(q, "short, and dropped\n")
		close(s.goOn)
		synctest.Wait()
		io.WriteString(q, "last\n")
		q.Close(time.Second)
		if got, want := s.text.String(), "first\n"+strings.Repeat(line, 4)+"dropped 3\nlast\n"; got != want {
			t.Errorf("it got %d bytes that end in %q, not %d", len(got), got[max(0, len(got)-40):], len(want))
		}
	})
}

// What cannot be written counts as dropped.
func TestQueueOfAReaderThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{broken: true}
		q := New(r, Usual, dropped)
		io.WriteString(q, "one\n")
		io.WriteString(q, "two\n")
		synctest.Wait()
		r.mu.Lock()
		r.broken = false
		r.mu.Unlock()
		io.WriteString(q, "three\n")
		q.Close(time.Second)
		if got := r.text.String(); got != "dropped 2\nthree\n" {
			t.Errorf("%q", got)
		}
	})
}

// The end waits for a reader that hangs for as long as it is told, and not for one that reads.
func TestQueueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{goOn: make(chan struct{})}
		for _, c := range []struct {
			to   io.Writer
			took time.Duration
		}{{&reader{}, 0}, {s, time.Second}} {
			q, began := New(c.to, Usual, dropped), time.Now()
			io.WriteString(q, "a line\n")
			if q.Close(time.Second); time.Since(began) != c.took {
				t.Errorf("%T: it took %v", c.to, time.Since(began))
			}
			io.WriteString(q, "too late\n")
		}
		close(s.goOn)
	})
}
