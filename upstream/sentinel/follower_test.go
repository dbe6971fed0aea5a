package sentinel

import (
	"log/slog"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"

	"github.com/lockproxy/lockproxy/upstream"
)

func TestMain(m *testing.M) { testredis.VerifyTestMain(m) }

// What follows when the master changes: the former one's connections end, and nobody hears it any more when the hooks are called.
func TestFollowAnother(t *testing.T) {
	t.Parallel()
	f := &Follower{
		log: slog.New(slog.DiscardHandler), council: council{statements: make([]statement, 3)},
		target: upstream.Target{Sentinels: &upstream.Sentinels{Master: "main"}}, peers: []*sentinel{{}, {}, {}},
	}
	say := func(addr string, epoch int64) (now string) {
		for i := range f.council.statements {
			f.report(i, statement{masterAddress: masterAddress{addr, epoch}})
		}
		now, _ = f.Present()
		return now
	}
	if now := say("a:1", 7); now != "a:1" {
		t.Fatalf("at %q", now)
	}
	term, _ := f.Now()
	f.OnSwitch(func() {
		if term.Err() == nil {
			t.Error("the former master may still be heard when the hooks are called")
		}
	})
	if now := say("b:1", 8); now != "b:1" || term.Err() == nil {
		t.Errorf("at %q", now)
	}
	if _, switches := f.Present(); switches != 1 {
		t.Errorf("%d switches", switches)
	}
}
