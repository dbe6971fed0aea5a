package held

import (
	"runtime"
	"sync"
	"testing"
)

// BenchmarkMutex is what a mutex costs that nobody else wants, and with -cpu 2 and more one that all processors want at
// once: its cache line goes from one to the other.
func BenchmarkMutex(b *testing.B) {
	var mu sync.Mutex
	n := 0
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			mu.Lock()
			n++
			mu.Unlock()
		}
	})
}

func TestMeasure(t *testing.T) {
	var mu, free sync.Mutex
	r := testing.Benchmark(func(b *testing.B) {
		Measure(b, func() {
			for range b.N {
				mu.Lock()
				for range 1000 {
				}
				mu.Unlock()
			}
		}, Mutex{"all", &mu}, Mutex{"none", &free})
	})
	if runtime.GOMAXPROCS(0) == 1 {
		t.Skip("nobody can look")
	}
	if all, none := r.Extra["all-held-%"], r.Extra["none-held-%"]; all < 50 || none > 10 {
		t.Errorf("the one was held for %v %%, and the other for %v %%", all, none)
	}
}
