package session

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A drain tells every few seconds which clients and locks it waits for. Connections of operators, who look on, are closed last, and not waited for.
func TestDrainTellsWhomItWaitsFor(t *testing.T) {
	var log lines
	inBubble(t, func(o *ServerOptions) {
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.Operators = []string{"default"}
	}, func(t *testing.T, b *bubble) {
		idle, holder, watching, operator := b.dial(t), b.dial(t), b.dial(t), b.dial(t)
		idle.expect("+PONG\r\n", "PING")
		holder.expect("+OK\r\n", "CLIENT", "SETNAME", "worker-1")
		holder.expect("+OK\r\n", "LOCK", "orders:7")
		watching.expect("+OK\r\n", "WATCH", "k")
		operator.do("LOCKPROXY", "STATS")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan error, 1)
		go b.shutdown(ctx, done)
		if got := idle.frame(); got != "<end>" {
			t.Fatalf("idle client: %q", got)
		}
		time.Sleep(drainTell + time.Second)
		for _, want := range []string{"still draining", "held locks: 1; others in the middle of a command, a wait or a transaction: 1", "named worker-1 holds orders:7", ": watch"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %q:\n%s", want, log.String())
			}
		}
		time.Sleep(3 * drainTell)
		if n := strings.Count(log.String(), "still draining"); n != 4 {
			t.Errorf("%d lines in 21 s", n)
		}
		if got := operator.do("LOCKPROXY", "CLIENTS"); !strings.Contains(got, "worker-1") {
			t.Errorf("an operator sees %q", got)
		}
		holder.expect(":1\r\n", "UNLOCK", "orders:7")
		if got := holder.frame(); got != "<end>" {
			t.Errorf("holder that released: %q", got)
		}
		operator.do("LOCKPROXY", "STATS")
		watching.expect("+OK\r\n", "UNWATCH")
		for name, w := range map[string]*wire{"the last client": watching, "an operator": operator} {
			if got := w.frame(); got != "<end>" {
				t.Errorf("%s: %q", name, got)
			}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestLaggardsAreNamed(t *testing.T) {
	var all []laggard
	for i := range 12 {
		all = append(all, laggard{addr: fmt.Sprint("10.0.0.", i, ":1"), last: "blpop"})
	}
	all[11].name, all[11].locks = "worker", []string{"a", "b", "c", "d", "e", "f", strings.Repeat("x", 1<<20)}
	got := nameLaggards(all)
	for _, want := range []string{"held locks: 1; others", "transaction: 11 (10.0.0.11:1 named worker holds a, b, c, d, e, and 2 more; 10.0.0.0:1: blpop;", "and 2 more clients)"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	all[11].locks = []string{strings.Repeat("x", 1<<20)}
	if n := len(nameLaggards(all)); n > 1000 {
		t.Errorf("%d bytes", n)
	}
	if got := nameLaggards(nil); strings.Contains(got, "(") {
		t.Errorf("of nobody: %q", got)
	}
}
