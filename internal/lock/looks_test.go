package lock

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// A reader whose ten newest nested holds have expired, of whom a look cannot tell whether it still reads, is looked at no more often than others.
func TestNestedReaderIsNotAskedAboutWithoutPause(t *testing.T) {
	for _, nested := range []int64{100, 2000} {
		inBubble(t, func(t *testing.T, w *world.World) {
			n := w.NewNode(bubbleAddr)
			m := bubbleEngine(t, w, n, "one", Options{})
			a, told := client(m)
			mustLock(t, a, Request{Key: "k", Kind: Read, Lease: 3600000})
			for range 10 {
				mustLock(t, a, Request{Key: "k", Kind: Read, Lease: nested, Self: true})
			}
			ran := scriptsOf(n)
			time.Sleep(5 * time.Minute)
			if ran.Load() > 80 || told.reasons() != "" {
				t.Errorf("re-entered for %d ms: %d scripts in 5 minutes, told %q", nested, ran.Load(), told.reasons())
			}
		})
	}
}
