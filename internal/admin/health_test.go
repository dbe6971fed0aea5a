package admin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// page is the status and the text of a page.
func page(t *testing.T, h *Health, path string) (int, string) {
	t.Helper()
	mux := http.NewServeMux()
	for pattern, handler := range h.Handlers() {
		mux.Handle(pattern, handler)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func want(t *testing.T, h *Health, path string, code int, text string) {
	t.Helper()
	if gotCode, gotText := page(t, h, path); gotCode != code || gotText != text {
		t.Errorf("%s: %d %q, want %d %q", path, gotCode, gotText, code, text)
	}
}

func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Health
		want(t, &h, "/readyz", 503, "starting\n")
		want(t, &h, "/livez", 200, "ok\n")
		var asked int
		var fails error
		good := Check{Name: "good", Ask: func(context.Context) error { asked++; return nil }}
		h.Serve(good, Check{Name: "bad", Ask: func(context.Context) error { return fails }})
		want(t, &h, "/readyz", 200, "ok\n")
		fails = errors.New("one\ntwo")
		want(t, &h, "/readyz", 200, "ok\n") // fresh still
		time.Sleep(freshFor)
		want(t, &h, "/readyz", 503, "bad: one two\n")
		if asked != 2 {
			t.Errorf("three answers within a moment took %d questions, not 2", asked)
		}
		fails = nil
		h.Drain()
		want(t, &h, "/readyz", 503, "draining\n")
		want(t, &h, "/livez", 200, "ok\n")
	})
}

// A check that is only told of does not keep the process from being ready; it is told beside what does, too.
func TestReadyTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Health
		var fails error
		h.Serve(Check{Name: "upstream", Ask: func(context.Context) error { return fails }},
			Check{Name: "locks", Told: true, Ask: func(context.Context) error { return errors.New("OOM full") }})
		want(t, &h, "/readyz", 200, "ok\nlocks: OOM full\n")
		if trouble := h.Trouble(t.Context()); len(trouble) != 0 {
			t.Errorf("it is not ready: %q", trouble)
		}
		fails = errors.New("away")
		time.Sleep(freshFor)
		want(t, &h, "/readyz", 503, "upstream: away\nlocks: OOM full\n")
	})
}

// A check that hangs is answered for within the second that Kubernetes waits, and says nothing of the others.
func TestSlowCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Health
		h.Serve(
			Check{Name: "slow", Ask: func(ctx context.Context) error { <-ctx.Done(); time.Sleep(time.Minute); return nil }},
			Check{Name: "good", Ask: func(context.Context) error { return nil }},
		)
		before := time.Now()
		want(t, &h, "/readyz", 503, "slow: no answer within 800ms\n")
		if took := time.Since(before); took >= time.Second {
			t.Errorf("the answer took %v", took)
		}
		time.Sleep(2 * time.Minute)
	})
}

// Who gives up waiting has been asked for all the same: his answer is that of those behind him.
func TestImpatientAsker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Health
		asked := 0
		h.Serve(Check{Name: "slow", Ask: func(ctx context.Context) error { asked++; return ctx.Err() }})
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		h.Trouble(gone)
		want(t, &h, "/readyz", 200, "ok\n")
		synctest.Wait()
		if asked != 1 {
			t.Errorf("two askers took %d questions, not 1", asked)
		}
	})
}

// However many hang up before, an answer takes less than a second.
func TestAskerBehindImpatientOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Health
		h.Serve(Check{Name: "hangs", Ask: func(context.Context) error { time.Sleep(time.Minute); return nil }})
		var all sync.WaitGroup
		for i := range 20 {
			impatient, cancel := context.WithTimeout(t.Context(), 740*time.Millisecond+time.Duration(i)*time.Millisecond)
			defer cancel()
			all.Go(func() { h.Trouble(impatient) })
			synctest.Wait()
		}
		time.Sleep(time.Millisecond)
		before := time.Now()
		want(t, &h, "/readyz", 503, "hangs: no answer within 800ms\n")
		if took := time.Since(before); took >= time.Second {
			t.Errorf("the answer took %v", took)
		}
		all.Wait()
		time.Sleep(2 * time.Minute)
	})
}

func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Health
		ctx, cancel := context.WithCancel(t.Context())
		stuck, told := make(chan struct{}), 0
		look := func() {
			if told == 10 {
				<-stuck
			}
		}
		over := make(chan struct{})
		beat := func() {
			defer close(over)
			h.Beat(ctx, 100*time.Millisecond, look, func() { told++ })
		}
		go beat()
		time.Sleep(time.Second)
		synctest.Wait()
		if told != 10 {
			t.Errorf("told %d times in a second", told)
		}
		want(t, &h, "/livez", 200, "ok\n")
		time.Sleep(31 * time.Second)
		want(t, &h, "/livez", 503, "stuck for 31s\n")
		close(stuck)
		synctest.Wait()
		want(t, &h, "/livez", 200, "ok\n")
		cancel()
		<-over
	})
}
