package dedicated

import (
	"testing"
	"time"
)

// For how long Redis may still say nothing: a command that waits has its own time besides, and what is not written has
// only the limit.
func TestSilence(t *testing.T) {
	t.Parallel()
	const limit = 10 * time.Second
	for _, c := range []struct {
		why           string
		e             Reply
		multi         bool
		quiet, writes time.Duration // since when; 0: it does not write
		want          time.Duration
	}{
		{"a reply", Reply{}, false, 3 * time.Second, 0, 7 * time.Second},
		{"nothing for too long", Reply{}, false, 11 * time.Second, 0, -time.Second},
		{"a command that waits", Reply{Wait: Wait{Blocks: true, For: 5 * time.Second}}, false, 3 * time.Second, 0, 12 * time.Second},
		{"it is queued", Reply{Wait: Wait{Blocks: true, For: 5 * time.Second}}, true, 3 * time.Second, 0, 7 * time.Second},
		{"it waits for ever", Reply{Wait: Wait{Blocks: true}}, false, 3 * time.Second, 0, forEver - 3*time.Second},
		{"a question of its own time", Reply{Within: time.Second}, false, 3 * time.Second, 0, -2 * time.Second},
		{"nothing is taken", Reply{Wait: Wait{Blocks: true}}, false, 11 * time.Second, 11 * time.Second, -time.Second},
		{"it has just begun to write", Reply{Wait: Wait{Blocks: true}}, false, time.Hour, time.Second, 9 * time.Second},
		{"Redis sends, and takes nothing", Reply{}, false, time.Second, time.Hour, 9 * time.Second},
	} {
		now := time.Now()
		s := silence{limit: limit, heard: now.Add(-c.quiet)}
		if c.writes > 0 {
			since := now.Add(-c.writes)
			s.writes.Store(&since)
		}
		if got := s.left(now, c.e.patience(limit, c.multi)); got != c.want {
			t.Errorf("%s: %v, want %v", c.why, got, c.want)
		}
	}
	var none silence
	none.start(0, func() {})
	if none.limit != forEver {
		t.Errorf("without a limit it is %v", none.limit)
	}
}
