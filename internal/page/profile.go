package page

import (
	"net/http"
	"net/http/pprof" // it also registers itself at http.DefaultServeMux, which nothing serves
	"runtime"
	"strconv"
	"time"
)

const (
	mostProfile = 30 // seconds
	blockEvery  = 10 * time.Microsecond
	mutexEvery  = 10 // contentions
)

// profiles are Go's: those of /debug/pprof/, but for the command line, which may have a password.
func (p *Page) profiles() []route {
	return []route{
		{"GET /debug/pprof/{$}", pprof.Index},
		{"GET /debug/pprof/{name}", p.profiled(pprof.Index)},
		{"GET /debug/pprof/profile", p.profiled(pprof.Profile)},
		{"GET /debug/pprof/trace", p.profiled(pprof.Trace)},
	}
}

// profiled takes one profile at a time, since each stops or slows the process, and of a bounded time. What goroutines
// wait for is noted meanwhile.
func (p *Page) profiled(take http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		seconds, _ := strconv.ParseFloat(r.URL.Query().Get("seconds"), 64)
		switch {
		case !(seconds <= mostProfile): // it may be no number
			http.Error(w, "a profile takes 30 seconds at most", http.StatusBadRequest)
			return
		case !p.profiling.TryLock():
			http.Error(w, "another profile is being taken", http.StatusConflict)
			return
		}
		defer p.profiling.Unlock()
		runtime.SetBlockProfileRate(int(blockEvery))
		defer runtime.SetBlockProfileRate(0)
		runtime.SetMutexProfileFraction(mutexEvery)
		defer runtime.SetMutexProfileFraction(0)
		take(w, r)
	}
}
