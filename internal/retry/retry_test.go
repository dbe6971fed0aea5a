package retry

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/jitter"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !Sleep(t.Context(), time.Hour, nil) || time.Since(began) != time.Hour {
			t.Errorf("an hour took %v", time.Since(began))
		}
		early := make(chan struct{}, 1)
		early <- struct{}{}
		if Sleep(t.Context(), time.Hour, early) || time.Since(began) != time.Hour {
			t.Error("it slept in spite of the signal")
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		if Sleep(ctx, time.Hour, early) || time.Since(began) != time.Hour+time.Minute {
			t.Errorf("ctx ended after a minute, the sleep after %v", time.Since(began)-time.Hour)
		}
	})
}

func TestBackoff(t *testing.T) {
	defer jitter.From(nil)
	b := Backoff{First: 10, Most: 50}
	pauses := func(n int) (all []time.Duration) {
		for range n {
			all = append(all, b.Next())
		}
		return all
	}
	jitter.From(func(int64) int64 { return 0 })
	if got := pauses(4); !slices.Equal(got, []time.Duration{5, 10, 20, 25}) || !b.Failed() {
		t.Errorf("the shortest pauses are %v", got)
	}
	b.Reset()
	if b.Failed() {
		t.Error("it has failed since it was reset")
	}
	jitter.From(func(n int64) int64 { return n - 1 })
	if got := pauses(4); !slices.Equal(got, []time.Duration{14, 29, 59, 74}) {
		t.Errorf("the longest pauses are %v", got)
	}
}
