package simulation

import (
	crand "crypto/rand"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/lockproxy/lockproxy/internal/jitter"
)

// What is random in the proxies follows from the seed of the run. Runs go on side by side, each in a bubble with a time of its own, by
// which it is told whose random numbers are asked for.

// apart is how far the times of two runs are from each other.
const apart = 10000 * time.Hour

// eras are the beds of the runs under way, by their eras.
var eras sync.Map

// sideBySide is how many runs may go on at once.
const sideBySide = 8

// takeEra is the first of the times that no run has, until it is given back.
func takeEra() (n int64) {
	for n = 1; ; n++ { // there are few
		if _, taken := eras.LoadOrStore(n, (*bed)(nil)); !taken {
			return n
		}
	}
}

var midnight = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when every bubble begins

// era is the number of the time that it is in this bubble.
func era() int64 { return int64(time.Since(midnight) / apart) }

// now is the bed of the bubble that asks; nil: it is none's.
func now() *bed {
	b, _ := eras.Load(era())
	bed, _ := b.(*bed)
	return bed
}

// uuids is a reader of random bytes.
type uuids struct{ mu sync.Mutex }

func (u *uuids) Read(p []byte) (int, error) {
	b := now()
	if b == nil {
		return crand.Read(p)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return b.uuids.Read(p)
}

// repeatable has everything that is random in the proxies follow from the seed. The pauses follow from the instant, too, so that it does
// not matter in which order goroutines ask.
func repeatable() {
	uuid.SetRand(&uuids{})
	jitter.From(func(n int64) int64 {
		if b := now(); b != nil {
			return b.w.Chance(n, "pause")
		}
		return rand.Int64N(n)
	})
	jitter.Turns(func(what string) {
		if b := now(); b != nil {
			time.Sleep(time.Duration(1 + b.w.Chance(int64(10*time.Microsecond), what)))
		}
	})
}
