package simulation

import (
	crand "crypto/rand"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/lockproxy/lockproxy/internal/jitter"
)

// current is the environment of the run under way, from which the proxies' random numbers come. Runs take turns.
var current atomic.Pointer[environment]

// uuids is a reader of random bytes.
type uuids struct{ mu sync.Mutex }

func (u *uuids) Read(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if b := current.Load(); b != nil {
		return b.uuids.Read(p)
	}
	return crand.Read(p)
}

// repeatable has everything that is random in the proxies follow from the seed. The pauses follow from the instant, too, so that it does
// not matter in which order goroutines ask.
func repeatable() {
	uuid.SetRand(&uuids{})
	jitter.From(func(n int64) int64 {
		if b := current.Load(); b != nil {
			return b.w.Chance(n, "pause")
		}
		return rand.Int64N(n)
	})
	jitter.Turns(func(what string, more []string) {
		if b := current.Load(); b != nil {
			time.Sleep(time.Duration(1 + b.w.Chance(int64(10*time.Microsecond), what+strings.Join(more, " "))))
		}
	})
}
