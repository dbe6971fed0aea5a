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
	b := newBudget(10*drawStep, "a bound", slog.New(slog.NewTextHandler(&log, nil)), &gauge, &counter)
	var gone []string
	account := func(name string) *Account {
		return &Account{of: b, addr: name, drop: func(string) { gone = append(gone, name) }}
	}
	small, middle, large, late := account("small"), account("middle"), account("large"), account("late")
	small.Set(freeBytes)
	if gauge.Value() != 0 {
		t.Errorf("%d bytes are drawn for a small command", gauge.Value())
	}
	middle.Set(3 * drawStep)
	large.Set(5 * drawStep)
	if late.Set(2 * drawStep); len(gone) > 0 || b.used != 10*drawStep {
		t.Errorf("dropped at the bound: %q", gone)
	}
	late.Set(3 * drawStep)
	if len(gone) != 1 || gone[0] != "large" || gauge.Value() != 6*drawStep {
		t.Errorf("gone: %q, %d bytes drawn", gone, gauge.Value())
	}
	large.Set(9 * drawStep) // it has not noticed yet
	late.Set(11 * drawStep)
	if len(gone) != 2 || gone[1] != "late" || gauge.Value() != 3*drawStep || counter.Value() != 2 {
		t.Errorf("gone: %q, %d bytes drawn", gone, gauge.Value())
	}
	middle.Set(0)
	if gauge.Value() != 0 || len(b.accounts) > 0 || b.used != 0 {
		t.Errorf("%d bytes are left", gauge.Value())
	}
	if n := strings.Count(log.String(), "a bound is reached"); n != 2 {
		t.Errorf("%d lines for two drops", n)
	}
}

// What need not be held is held while there is room. Then the client that has the most is dropped for another that has
// less.
func TestBudgetOfWhatNeedNotBeKept(t *testing.T) {
	t.Parallel()
	b := newBudget(10*drawStep, "", slog.New(slog.DiscardHandler), new(telemetry.Gauge), new(telemetry.Counter))
	gone := ""
	large, small := &Account{of: b, drop: func(string) { gone += "large " }}, &Account{of: b, drop: func(string) { gone += "small " }}
	for _, step := range []struct {
		a     *Account
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
		if taken := step.a.trySet(step.n); taken != step.taken || gone != step.gone {
			t.Errorf("%+v: taken: %t, gone: %q", step, taken, gone)
		}
	}
}

func TestBudgetsAreSharedSafely(t *testing.T) {
	t.Parallel()
	var gauge telemetry.Gauge
	var counter telemetry.Counter
	b := newBudget(100*drawStep, "", slog.New(slog.NewTextHandler(io.Discard, nil)), &gauge, &counter)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				a := &Account{of: b, drop: func(string) {}}
				for n := range 40 {
					a.Set(n * drawStep)
				}
				a.Set(0)
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
	b := newBudget(clients*2*drawStep, "a bound", slog.New(slog.DiscardHandler), &gauge, &counter)
	draw := func() { (&Account{of: b, drop: func(string) {}}).Set(2 * drawStep) }
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
