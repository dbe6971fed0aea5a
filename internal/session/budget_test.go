package session

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// The largest go first, and nobody pays for a little.
func TestBudgetDropsTheLargest(t *testing.T) {
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
	if b.set(late, 2*drawStep); len(gone) > 0 || !b.pressed() {
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
	if gauge.Value() != 0 || len(b.accounts) > 0 || b.pressed() {
		t.Errorf("%d bytes are left", gauge.Value())
	}
	if n := strings.Count(log.String(), "a bound is reached"); n != 1 {
		t.Errorf("%d lines for two drops within a second", n)
	}
}

func TestBudgetsAreSharedSafely(t *testing.T) {
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

func TestTakeBack(t *testing.T) {
	for _, n := range []int{0, 1, 5, 7, 11, 12, 20} {
		b := &batch{full: [][]byte{[]byte("01234"), []byte("56")}, fullSize: 7, out: []byte("789ab")}
		b.takeBack(n)
		left := string(bytes.Join(append(b.full, b.out), nil))
		if want := "0123456789ab"[:max(0, 12-n)]; left != want || b.fullSize+len(b.out) != len(want) {
			t.Errorf("without the last %d: %q, counted as %d", n, left, b.fullSize+len(b.out))
		}
	}
}

// As in Redis a subscriber is never idle.
func TestSubscribersMayIdle(t *testing.T) {
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(o *Options) { o.IdleTimeout = 200 * time.Millisecond })
	w := dialWire(t, p.addr)
	w.expect("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "SUBSCRIBE", "c")
	time.Sleep(time.Second)
	w.expect("*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n", "UNSUBSCRIBE", "c")
	if got := w.frame(); got != "<end>" {
		t.Errorf("idle, and not subscribed any more: %q", got)
	}
}

// A client that reads nothing is idle too, but one that reads slowly is not.
func TestIdleTimeoutOfReaders(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	g := newTestGuard(here)
	g.srv.o.IdleTimeout = 200 * time.Millisecond
	read := make(chan int)
	go func() {
		total := 0
		for range 20 {
			n, _ := io.ReadFull(there, make([]byte, 100))
			total += n
			time.Sleep(50 * time.Millisecond)
		}
		read <- total
	}()
	n, err := g.Write(make([]byte, 1<<20))
	if got := <-read; err == nil || n < 2000 || got != 2000 {
		t.Errorf("%d written, %d read, %v", n, got, err)
	}
}
