package main

import (
	"context"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/scripts"
)

// TestStraightPairs holds the bench to what the scripts take and return today.
func TestStraightPairs(t *testing.T) {
	s := testredis.Start(t)
	for _, script := range []*scripts.Script{scripts.Acquire, scripts.Release} {
		s.Do(t, "SCRIPT", "LOAD", script.Source)
	}
	straight := &target{name: "direct", addr: s.Addr()}
	running, err := loopLoad{straight.addr, 2, straight.pair(false), false}.start(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); running.pairs.Load() < 10 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if err := running.stop(); err != nil || running.pairs.Load() < 10 {
		t.Fatal(running.pairs.Load(), err)
	}
}
