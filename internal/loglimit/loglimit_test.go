package loglimit

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// logged runs f with a limited logger, and returns the lines that it has written.
func logged(f func(log *slog.Logger)) []string {
	var out bytes.Buffer
	f(slog.New(New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func TestLinesOfAKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := logged(func(log *slog.Logger) {
			for i := range 1000 {
				log.With("from", i).Warn("a client is odd", "client", i)
			}
			log.Error("something else")
			time.Sleep(period)
			log.Warn("a client is odd", "client", "late")
			time.Sleep(period)
			log.Warn("a client is odd", "client", "later")
		})
		if len(lines) != usual+3 {
			t.Fatalf("%d lines, want %d:\n%s", len(lines), usual+3, strings.Join(lines, "\n"))
		}
		for i, want := range map[int]string{usual - 1: "others-left-out-for=10s", usual: "something else", usual + 1: "client=late others-since-last-told=992"} {
			if !strings.Contains(lines[i], want) {
				t.Errorf("line %d lacks %q: %s", i, want, lines[i])
			}
		}
		for _, i := range []int{0, usual, usual + 2} {
			if strings.Contains(lines[i], "others") {
				t.Errorf("nothing was left out before line %d, nor will be: %s", i, lines[i])
			}
		}
	})
}

func TestMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := logged(func(log *slog.Logger) {
			for range 50 {
				Most(log, 20).Info("a lock was lost")
			}
		})
		if len(lines) != 20 {
			t.Errorf("%d lines, want 20", len(lines))
		}
	})
	var out bytes.Buffer
	plain := slog.New(slog.NewTextHandler(&out, nil))
	if Most(plain, 20) != plain {
		t.Error("a logger without limits is another one")
	}
}

// Who wants to see everything does.
func TestDebugIsNotLimited(t *testing.T) {
	if lines := logged(func(log *slog.Logger) {
		for range 50 {
			log.Debug("a client left")
		}
	}); len(lines) != 50 {
		t.Errorf("%d lines, want 50", len(lines))
	}
}

// However many different messages there are, few are remembered.
func TestKindsAreBounded(t *testing.T) {
	h := New(slog.DiscardHandler)
	for i := range 10 * mostKinds {
		h.kinds.countLine(fmt.Sprint(i), usual, time.Now())
	}
	if n := len(h.kinds.byMessage); n > mostKinds {
		t.Errorf("%d messages are remembered", n)
	}
}
