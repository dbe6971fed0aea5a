package harness

import (
	"runtime"
	"testing"
	"time"
)

// ended is a test that ends at its first failure.
type ended struct {
	testing.TB
	failed bool
}

func (e *ended) Fatalf(string, ...any) { e.failed = true; runtime.Goexit() }
func (e *ended) Logf(string, ...any)   {}
func (e *ended) Helper()               {}

// TestUndisturbed: what is wrong every time fails, also on a machine that stalls every time; what is right in the end does not.
func TestUndisturbed(t *testing.T) {
	for name, c := range map[string]struct {
		wrong  int           // so many times
		stall  time.Duration // each time
		passes bool
	}{
		"right":                  {0, 0, true},
		"wrong once":             {1, 0, true},
		"wrong":                  {100, 0, false},
		"wrong in three stalls":  {3, MayStall, true},
		"wrong in all its tries": {100, MayStall, false},
	} {
		if c.passes && c.wrong > 0 && Long() {
			continue // the long forms take the first result
		}
		tried, e, over := 0, &ended{TB: t}, make(chan struct{})
		go func() {
			defer close(over)
			watch := func() func() time.Duration { return func() time.Duration { return c.stall } }
			untilUndisturbed(e, watch, func() string {
				tried++
				if tried <= c.wrong {
					return "wrong"
				}
				return ""
			})
		}()
		if <-over; e.failed == c.passes {
			t.Errorf("%s: failed %v after %d tries", name, e.failed, tried)
		}
	}
}
