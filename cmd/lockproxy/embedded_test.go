package main

import (
	"log/slog"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Commands alone move the clock: a key's time runs out while nobody asks, and a script that takes longer than a tick comes to its end.
func TestCommandsMoveTheClock(t *testing.T) {
	t.Parallel()
	store, err := startEmbedded(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer store.close()
	c, err := redis.Dial("tcp", store.redis.Addr(), redis.DialReadTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Do("SET", "k", "v", "PX", 20); err != nil {
		t.Fatal(err)
	}
	// On a busy machine a tick takes long, and the clock then rests longer.
	for patience := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		v, err := c.Do("GET", "k")
		if err != nil {
			t.Fatal(err)
		}
		if v == nil {
			break
		}
		if time.Now().After(patience) {
			t.Fatalf("a key whose time is over is still there a minute later: %q", v)
		}
	}
	const ticks = `local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end
		local began = now() while now() < began + 30000 do end return 'end'`
	if v, err := redis.String(c.Do("EVAL", ticks, 0)); v != "end" || err != nil {
		t.Errorf("a script of three ticks: %q, %v", v, err)
	}
}

// However many keys there are, the clock leaves clients time.
func TestClockLeavesTime(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{
		0: clockTick, time.Millisecond: clockTick, 10 * time.Millisecond: 90 * time.Millisecond, time.Second: 9 * time.Second,
	} {
		if got := rest(took); got != want {
			t.Errorf("%v after a tick of %v, not %v", got, took, want)
		}
	}
}
