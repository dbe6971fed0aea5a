// Package held measures, for benchmarks, for how long mutexes are held. docs/SCALING.md has its figures.
package held

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Mutex is one that is measured, by the name that the figure gets.
type Mutex struct {
	Name string
	Of   *sync.Mutex
}

// Measure runs run, and reports what can be had of the figure: with GOMAXPROCS 1 how much CPU time an operation takes,
// and with more for what part of the time each mutex was held, because a goroutine that looks at random moments whether
// it is needs a processor besides that of run. Both together say for how long an operation holds it, on a busy machine,
// too.
func Measure(b *testing.B, run func(), all ...Mutex) {
	if runtime.GOMAXPROCS(0) == 1 {
		before := cpuTime(b)
		run()
		b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		return
	}
	var looking sync.WaitGroup
	stop, looks, taken := make(chan struct{}), 0, make([]int, len(all))
	looking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for range rand.IntN(lookEvery) {
			}
			looks++
			for i, m := range all {
				if m.Of.TryLock() {
					m.Of.Unlock()
				} else {
					taken[i]++
				}
			}
		}
	})
	run()
	close(stop)
	looking.Wait()
	for i, m := range all {
		b.ReportMetric(100*float64(taken[i])/float64(max(looks, 1)), m.Name+"-held-%")
	}
}

// lookEvery is how many rounds of an empty loop, each about a nanosecond, pass at most between two looks: few enough
// looks that those who take the mutex do not notice them.
const lookEvery = 10_000

// cpuTime is what this process has used so far, user and system.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
