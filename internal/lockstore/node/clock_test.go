package node

import (
	"testing"
	"time"
)

// TestClockJump: a sample that the round trip does not explain is a jump, of a size that the sample tells.
func TestClockJump(t *testing.T) {
	var c Clock
	sent := time.Now()
	if jump, _ := c.Set(1e15, sent, 0); jump.By != 0 {
		t.Fatal("the first sample jumped")
	}
	at, known := c.Now()
	if !known || at < 1e15 {
		t.Fatal(at)
	}
	if jump, _ := c.Set(at, time.Now(), 0); jump.By != 0 || jump.Another {
		t.Fatalf("an even clock jumped by %v", jump)
	}
	for _, by := range []time.Duration{10 * time.Second, -10 * time.Second} {
		at, _ = c.Now()
		jump, _ := c.Set(at+by.Microseconds(), time.Now(), 0)
		if d := jump.By - by; d.Abs() > time.Second || jump.Another {
			t.Errorf("jumped by %v, noticed %v", by, jump)
		}
	}
}

// TestClockOfANewMaster: what the former master's clock said counts no more, also when it says so late, but for how far the
// new one is from it.
func TestClockOfANewMaster(t *testing.T) {
	var c Clock
	era := c.Era()
	if _, ok := c.Set(1e12, time.Now(), era); !ok {
		t.Fatal("the first sample was not taken")
	}
	c.Forget()
	if _, known := c.Now(); known {
		t.Error("the former master's clock is still believed")
	}
	if _, ok := c.Set(1e12, time.Now(), era); ok {
		t.Error("a late sample of the former master was taken")
	}
	if _, known := c.Now(); known {
		t.Error("a late sample of the former master is believed")
	}
	jump, ok := c.Set(1e12+1e9, time.Now(), c.Era())
	ahead := time.Duration(1e9) * time.Microsecond
	if at, known := c.Now(); !ok || (jump.By-ahead).Abs() > time.Minute || !jump.Another || !known || at < 1e12+1e9 {
		t.Errorf("the new master's clock: %v %v %v %v", at, known, jump, ok)
	}
}

// TestNotAfter: it is a time of Redis' clock in µs, and never below 0.
func TestNotAfter(t *testing.T) {
	for at, want := range map[int64]string{1763846000123456: "1763846000123456", 0: "0", -5: "0"} {
		if got := NotAfter(at); got != want {
			t.Errorf("%d: %q, want %q", at, got, want)
		}
	}
}
