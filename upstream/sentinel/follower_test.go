package sentinel

import (
	"log/slog"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"

	"github.com/lockproxy/lockproxy/upstream"
)

func TestMain(m *testing.M) { testredis.VerifyTestMain(m) }

// TestLowerEpoch: Sentinels that were set up anew begin with a lower epoch. That counts when it stays so.
func TestLowerEpoch(t *testing.T) {
	t.Parallel()
	f := &Follower{
		log: slog.New(slog.DiscardHandler), changed: make(chan struct{}), views: make([]view, 3),
		target: upstream.Target{Sentinels: &upstream.Sentinels{Master: "main"}}, peers: []*sentinel{{}, {}, {}},
	}
	say := func(addr string, epoch int64) (now string) {
		for i := range f.views {
			f.report(i, view{place: place{addr, epoch}})
		}
		now, _ = f.Present()
		return now
	}
	if now := say("a:1", 7); now != "a:1" {
		t.Fatalf("at %q", now)
	}
	term := f.now
	f.hooks = append(f.hooks, func() {
		if term.ctx.Err() == nil {
			t.Error("the former master may still be heard when the hooks are called")
		}
	})
	if now := say("b:1", 0); now != "a:1" {
		t.Errorf("a lower epoch counts at once: at %q", now)
	}
	f.lower = time.Now().Add(-resetTimeout / 2)
	if say("a:1", 7); !f.lower.IsZero() {
		t.Error("the epoch came back, and the time it was lower counts on")
	}
	say("b:1", 0)
	f.lower = f.lower.Add(-resetTimeout)
	if now := say("b:1", 0); now != "b:1" || term.ctx.Err() == nil {
		t.Errorf("a lower epoch that stays is not followed: at %q", now)
	}
	if _, switches := f.Present(); switches != 1 {
		t.Errorf("%d switches", switches)
	}
}
