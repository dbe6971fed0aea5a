package page

import (
	"io"
	"maps"
	"net/http"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/retry"
)

const (
	usualProfile = 5 // seconds
	mostProfile  = 30
)

// timed are the profiles of the next seconds. Those of which runtime/pprof does not know are written meanwhile.
var timed = map[string]struct {
	begin func(io.Writer) error
	end   func()
}{
	"profile": {pprof.StartCPUProfile, pprof.StopCPUProfile},
	"trace":   {trace.Start, trace.Stop},
	"block": {func(io.Writer) error { runtime.SetBlockProfileRate(int(10 * time.Microsecond)); return nil },
		func() { runtime.SetBlockProfileRate(0) }},
	"mutex": {func(io.Writer) error { runtime.SetMutexProfileFraction(10); return nil },
		func() { runtime.SetMutexProfileFraction(0) }},
}

// profiles links to what go tool pprof, and go tool trace, read.
func (p *Page) profiles(w http.ResponseWriter, r *http.Request) {
	var d document
	f := p.frame(r.Context(), "")
	d.open(f, "Profiles", false)
	d.put("<h2>Profiles</h2>\n<ul>\n")
	for _, name := range []string{"allocs", "goroutine", "heap"} {
		d.put(`<li><a href="/debug/pprof/%s">%s</a>, <a href="/debug/pprof/%s?debug=1">as text</a></li>`+"\n", name, name, name)
	}
	for _, name := range slices.Sorted(maps.Keys(timed)) {
		d.put(`<li><a href="/debug/pprof/%s?seconds=%d">%s</a> of %d seconds</li>`+"\n", name, usualProfile, name, usualProfile)
	}
	d.put("</ul>\n")
	d.close(f)
	d.send(w, http.StatusOK)
}

// profile answers with a profile. There is one at a time, since each stops or slows the process.
func (p *Page) profile(w http.ResponseWriter, r *http.Request) {
	name, q := r.PathValue("name"), r.URL.Query()
	of, isTimed := timed[name]
	known := pprof.Lookup(name)
	if !isTimed && known == nil {
		http.Error(w, "there is no such profile", http.StatusNotFound)
		return
	}
	if !p.profiling.TryLock() {
		http.Error(w, "another profile is being taken", http.StatusConflict)
		return
	}
	defer p.profiling.Unlock()
	seconds, _ := strconv.Atoi(q.Get("seconds"))
	if seconds < 1 {
		seconds = usualProfile
	}
	text, _ := strconv.Atoi(q.Get("debug"))
	takes := time.Duration(min(seconds, mostProfile)) * time.Second
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(takes + answerTime)) // else it is cut off at its end
	w.Header().Set("Content-Type", either(text > 0, "text/plain; charset=utf-8", "application/octet-stream"))
	if isTimed {
		if err := of.begin(w); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		retry.Sleep(r.Context(), takes, p.ended)
		of.end()
	}
	if known != nil {
		_ = known.WriteTo(w, text) // whoever asked has hung up if this fails
	}
}
