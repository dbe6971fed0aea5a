// Package admin is what the machines of an operator ask the process about itself, by HTTP: is it alive, and is it ready for clients?
package admin

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
)

const (
	// askTime is for all checks of one answer. Kubernetes waits one second for it unless told otherwise.
	askTime = 800 * time.Millisecond
	// freshFor is how long an answer is given again, so that many who ask cost Redis no more than one.
	freshFor = 500 * time.Millisecond
	// stalledAfter is how long a beat may take. It is far above what a busy machine needs, since the answer is a restart.
	stalledAfter = 30 * time.Second
	// beatEvery is how often the process looks whether it is stuck.
	beatEvery = 5 * time.Second
)

// Check is one thing that is to be so when clients come.
type Check struct {
	Name string
	Ask  func(ctx context.Context) error // nil: it is so
	Told bool                            // it is only told of: the process is ready without
}

// Health knows whether the process is alive and ready. The zero value is one that starts.
type Health struct {
	mu       sync.Mutex // guards all below
	checks   []Check    // nil: the process is starting
	draining bool
	beat     time.Time // the last one's; zero before the first
	asked    time.Time // when the last round was over
	found    findings
	round    *round // under way, or nil
}

// round is one time that the checks are asked. All who come meanwhile get its answer.
type round struct {
	over  chan struct{} // closed when found is known
	found findings
}

// findings are what a round found, a line each.
type findings struct {
	trouble []string // what keeps the process from being ready
	told    []string // what is wrong beside
}

// Handlers are the pages, by their patterns.
func (h *Health) Handlers() map[string]http.Handler {
	return map[string]http.Handler{"GET /livez": http.HandlerFunc(h.livez), "GET /readyz": http.HandlerFunc(h.readyz)}
}

// Serve says that clients are served from now on, if all checks hold.
func (h *Health) Serve(checks ...Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = checks
}

// Drain says that no new clients should come.
func (h *Health) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
}

// Beat calls look every few seconds, or every so often if that is sooner and not 0, until ctx ends. look returns at once unless the
// process is stuck, and then the process is not alive any more. After each look told is called.
func (h *Health) Beat(ctx context.Context, every time.Duration, look, told func()) {
	if every == 0 || every > beatEvery {
		every = beatEvery
	}
	for {
		look()
		h.mu.Lock()
		h.beat = time.Now()
		h.mu.Unlock()
		if told(); !retry.Sleep(ctx, every, nil) {
			return
		}
	}
}

func (h *Health) livez(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	beat := h.beat
	h.mu.Unlock()
	if since := time.Since(beat); !beat.IsZero() && since > stalledAfter {
		answer(w, findings{trouble: []string{fmt.Sprintf("stuck for %v", since.Round(time.Second))}})
		return
	}
	answer(w, findings{})
}

func (h *Health) readyz(w http.ResponseWriter, r *http.Request) {
	answer(w, h.findTrouble(r.Context()))
}

// answer is 200, or 503 with a line for each trouble.
func answer(w http.ResponseWriter, f findings) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	lines := f.trouble
	if len(lines) == 0 {
		lines = []string{"ok"}
	} else {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = io.WriteString(w, strings.Join(slices.Concat(lines, f.told), "\n")+"\n") // whoever asked has hung up if this fails
}

// Trouble is what keeps the process from being ready, a line each; none: it is.
func (h *Health) Trouble(ctx context.Context) []string { return h.findTrouble(ctx).trouble }

// findTrouble takes no longer than askTime, whoever else has come and gone.
func (h *Health) findTrouble(ctx context.Context) findings {
	h.mu.Lock()
	if said, known := h.known(); known {
		h.mu.Unlock()
		return said
	}
	r, first := h.round, h.round == nil
	if first {
		r = &round{over: make(chan struct{})}
		h.round = r
	}
	checks := h.checks
	h.mu.Unlock()
	if first {
		// One who hangs up leaves the answer to those who wait behind him: if the round ended with him, theirs would begin anew.
		r.found = askAll(context.WithoutCancel(ctx), checks)
		close(r.over)
	}
	<-r.over
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.round == r {
		h.round, h.asked, h.found = nil, time.Now(), r.found
	}
	if h.draining { // meanwhile
		return findings{trouble: []string{"draining"}}
	}
	return r.found
}

// known is what can be said without asking. Callers hold mu.
func (h *Health) known() (f findings, known bool) {
	switch {
	case h.draining:
		return findings{trouble: []string{"draining"}}, true
	case h.checks == nil:
		return findings{trouble: []string{"starting"}}, true
	case h.round == nil && time.Since(h.asked) < freshFor:
		return h.found, true
	}
	return f, false
}

// askAll asks all checks at once. One that does not answer in time has failed.
func askAll(ctx context.Context, checks []Check) (f findings) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answers := make([]chan error, len(checks))
	for i, c := range checks {
		answers[i] = make(chan error, 1)
		go c.askInto(ctx, answers[i])
	}
	for i, c := range checks {
		var err error
		select {
		case err = <-answers[i]:
		case <-ctx.Done():
			select {
			case err = <-answers[i]:
			default:
				err = fmt.Errorf("no answer within %v", askTime)
			}
		}
		if err == nil {
			continue
		}
		line := c.Name + ": " + strings.Join(strings.Fields(err.Error()), " ")
		if c.Told {
			f.told = append(f.told, line)
		} else {
			f.trouble = append(f.trouble, line)
		}
	}
	return f
}

func (c Check) askInto(ctx context.Context, answer chan<- error) { answer <- c.Ask(ctx) }
