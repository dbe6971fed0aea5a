package downstream

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// The largest go first, and nobody pays for a little.
func TestBudgetDropsTheLargest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, dropTheLargest) // where no time passes
}

func dropTheLargest(t *testing.T) {
	var log bytes.Buffer
	var gauge telemetry.Gauge
	var counter telemetry.Counter
	b := &budget{limit: 10 * drawStep, what: "a bound", log: slog.New(slog.NewTextHandler(&log, nil)), bytes: &gauge, dropped: &counter,
		accounts: make(map[*account]struct{})}
	var gone []string
	account := func(name string) *account {
		return &account{addr: name, drop: func(string) { gone = append(gone, name) }}
	}
	small, middle, large, late := account("small"), account("middle"), account("large"), account("late")
	b.set(small, freeBytes)
	if gauge.Value() != 0 {
		t.Errorf("%d bytes are drawn for a small command", gauge.Value())
	}
	b.set(middle, 3*drawStep)
	b.set(large, 5*drawStep)
	if b.set(late, 2*drawStep); len(gone) > 0 || b.used != 10*drawStep {
		t.Errorf("dropped at the bound: %q", gone)
	}
	b.set(late, 3*drawStep)
	if len(gone) != 1 || gone[0] != "large" || gauge.Value() != 6*drawStep {
		t.Errorf("gone: %q, %d bytes drawn", gone, gauge.Value())
	}
	b.set(large, 9*drawStep) // it has not noticed yet
	b.set(late, 11*drawStep)
	if len(gone) != 2 || gone[1] != "late" || gauge.Value() != 3*drawStep || counter.Value() != 2 {
		t.Errorf("gone: %q, %d bytes drawn", gone, gauge.Value())
	}
	b.set(middle, 0)
	if gauge.Value() != 0 || len(b.accounts) > 0 || b.used != 0 {
		t.Errorf("%d bytes are left", gauge.Value())
	}
	if n := strings.Count(log.String(), "a bound is reached"); n != 1 {
		t.Errorf("%d lines for two drops within a second", n)
	}
}

// What need not be held is held while there is room. Then the client that has the most is dropped for another that has less.
func TestBudgetTakes(t *testing.T) {
	t.Parallel()
	b := &budget{limit: 10 * drawStep, log: slog.New(slog.DiscardHandler), bytes: new(telemetry.Gauge), dropped: new(telemetry.Counter),
		accounts: make(map[*account]struct{})}
	gone := ""
	large, small := &account{drop: func(string) { gone += "large " }}, &account{drop: func(string) { gone += "small " }}
	for _, step := range []struct {
		a     *account
		n     int
		taken bool
		gone  string
	}{
		{large, 10 * drawStep, true, ""},
		{large, 11 * drawStep, false, ""}, // it waits
		{large, 6 * drawStep, true, ""},
		{small, 4 * drawStep, true, ""},
		{large, 7 * drawStep, false, ""},
		{small, 5 * drawStep, true, "large "},
		{large, drawStep, false, "large "}, // it has gone
		{small, 10 * drawStep, true, "large "},
	} {
		if taken := b.take(step.a, step.n); taken != step.taken || gone != step.gone {
			t.Errorf("%+v: taken: %t, gone: %q", step, taken, gone)
		}
	}
}

func TestBudgetsAreSharedSafely(t *testing.T) {
	t.Parallel()
	var gauge telemetry.Gauge
	var counter telemetry.Counter
	b := &budget{limit: 100 * drawStep, log: slog.New(slog.NewTextHandler(io.Discard, nil)), bytes: &gauge, dropped: &counter, accounts: make(map[*account]struct{})}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				a := &account{drop: func(string) {}}
				for n := range 40 {
					b.set(a, n*drawStep)
				}
				b.set(a, 0)
			}
		})
	}
	all.Wait()
	if gauge.Value() != 0 || len(b.accounts) > 0 {
		t.Errorf("%d bytes, %d accounts are left", gauge.Value(), len(b.accounts))
	}
}

// What is shown as used never is above the bound, also while clients are dropped to make room.
func TestBudgetShowsNoMoreThanTheBound(t *testing.T) {
	t.Parallel()
	var gauge telemetry.Gauge
	var counter telemetry.Counter
	const clients = 2000
	b := &budget{limit: clients * 2 * drawStep, what: "a bound", log: slog.New(slog.DiscardHandler), bytes: &gauge, dropped: &counter,
		accounts: make(map[*account]struct{})}
	draw := func() { b.set(&account{drop: func(string) {}}, 2*drawStep) }
	for range clients {
		draw()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range clients { // each has another one dropped
			draw()
		}
	}()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		if shown := gauge.Value(); shown > int64(b.limit) {
			t.Fatalf("%d bytes of %d are shown as used", shown, b.limit)
		}
	}
	<-done
}
