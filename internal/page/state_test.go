package page

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/inforce"
)

// A drain is seen on every page while it lasts, and the files that settings name with what is left of them.
func TestState(t *testing.T) {
	e := &engine{}
	p := New(e.options())
	if got := ask(t, p, "GET", home+"/settings", "").Body.String(); strings.Contains(got, "drains") || !strings.Contains(got, "No setting names a file") {
		t.Errorf("no drain and no files: %s", got)
	}
	now := time.Now()
	late, soon := now.Add(30*24*time.Hour+time.Hour), now.Add(3*24*time.Hour+time.Hour)
	e.state.Drain = &inforce.Drain{Since: now.Add(-4 * time.Second), Closes: now.Add(time.Minute), Until: now.Add(100 * time.Second), Left: "10.0.0.1:7 holds <orders>"}
	e.state.Files = []inforce.File{{Name: "/tls/ca.pem", Holds: "certificates", Ends: &late}, {Name: "/tls/a.pem", Holds: "certificates", Ends: &soon}, {Name: "/password", Holds: "passwords", Trouble: "holds no password"}}
	for _, s := range sheets() {
		got := ask(t, p, "GET", home+s.path, "").Body.String()
		for _, want := range []string{"<b>drains</b>", "for 4.", "; lets clients in for ", "ends in 1", "10.0.0.1:7 holds &lt;orders&gt;"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s lacks %q", s.path, want)
			}
		}
	}
	if got := ask(t, p, "GET", home+"/parts?page=/", "").Body.String(); !strings.Contains(got, "drains") {
		t.Errorf("a browser that looks is not told of a drain: %s", got)
	}
	e.state.Drain.Closes = now
	got := ask(t, p, "GET", home+"/settings", "").Body.String()
	if strings.Contains(got, "lets clients in") {
		t.Error("clients are let in no more")
	}
	for _, want := range []string{"30 days left", "3 days left", "holds no password", "<bdi>/tls/a.pem</bdi>"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q", want)
		}
	}
	if n := strings.Count(got, `<tr class="bad">`); n != 2 {
		t.Errorf("%d files are shown as bad", n)
	}
}

func TestLogLevel(t *testing.T) {
	e := &engine{}
	p := New(e.options())
	if w := ask(t, p, "POST", home+"/log-level", "level=debug"); w.Code != http.StatusSeeOther || len(e.levels) != 1 {
		t.Errorf("%d, %q", w.Code, e.levels)
	}
	for _, body := range []string{"level=loud", "level=" + strings.Repeat("x", 1<<20), "x=y"} {
		if w := ask(t, p, "POST", home+"/log-level", body); w.Code != http.StatusBadRequest || len(e.levels) != 1 {
			t.Errorf("%.20s: %d, %q", body, w.Code, e.levels)
		}
	}
	if w := ask(t, p, "GET", home+"/log-level?level=debug", ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", w.Code)
	}
}

// Profiles can be read, one at a time, and a timed one ends with the page or when whoever asked has gone.
func TestProfiles(t *testing.T) {
	p := New((&engine{}).options())
	list := ask(t, p, "GET", home+"/debug/pprof/", "").Body.String()
	for _, name := range []string{"allocs", "goroutine", "heap", "block", "mutex", "profile", "trace"} {
		if !strings.Contains(list, `"/debug/pprof/`+name) {
			t.Errorf("%s is not in the list", name)
		}
		began := time.Now()
		w := ask(t, p, "GET", home+"/debug/pprof/"+name+"?seconds=1", "")
		head := w.Body.String()
		if begins := map[bool]string{true: "go 1.", false: "\x1f\x8b"}[name == "trace"]; w.Code != 200 || !strings.HasPrefix(head, begins) {
			t.Errorf("%s: %d %.20q", name, w.Code, head)
		}
		if _, is := timed[name]; is && time.Since(began) < time.Second {
			t.Errorf("%s took less than a second", name)
		}
	}
	if got := ask(t, p, "GET", home+"/debug/pprof/goroutine?debug=2", ""); !strings.Contains(got.Body.String(), "TestProfiles") || !strings.HasPrefix(got.Header().Get("Content-Type"), "text/plain") {
		t.Errorf("goroutines as text: %.100s", got.Body)
	}
	for _, none := range []string{"cmdline", "symbol", "x", "%2e%2e"} {
		if w := ask(t, p, "GET", home+"/debug/pprof/"+none, ""); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", none, w.Code)
		}
	}
	done := make(chan int)
	go func() { done <- ask(t, p, "GET", home+"/debug/pprof/profile?seconds=999", "").Code }()
	for deadline := time.Now().Add(10 * time.Second); p.profiling.TryLock(); time.Sleep(time.Millisecond) {
		p.profiling.Unlock()
		if time.Now().After(deadline) {
			t.Fatal("no profile is taken")
		}
	}
	if w := ask(t, p, "GET", home+"/debug/pprof/heap", ""); w.Code != http.StatusConflict {
		t.Errorf("a second one: %d", w.Code)
	}
	p.Close()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("a profile outlives the page")
	}
}
