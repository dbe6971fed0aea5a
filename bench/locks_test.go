package main

import (
	"testing"

	"github.com/lockproxy/lockproxy/bench/contest"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// TestScriptPairs holds the bench to what the scripts take and return today.
func TestScriptPairs(t *testing.T) {
	client, err := raw[rawScripts].Start(contest.Settings{Addr: testredis.Start(t).Addr()})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		both, err := client(i)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := both.Take(); err != nil {
				t.Fatal(err)
			}
			if err := both.Release(); err != nil {
				t.Fatal(err)
			}
		}
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
