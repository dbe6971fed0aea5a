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

// TestScriptSteps: each step is what its name says, for our script and for Redisson's.
func TestScriptSteps(t *testing.T) {
	s := testredis.Start(t)
	c, err := dial(t.Context(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, step := range steps() {
		for _, call := range []scriptCall{step.ours, step.theirs} {
			s.Do(t, "SCRIPT", "LOAD", call.source)
		}
		if _, err := step.sample(c, 2, false); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
}
