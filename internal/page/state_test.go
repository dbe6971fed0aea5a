package page

import (
	"io"
	"net/http"
	"os"
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

// Go's profiles can be read, one at a time and for a bounded time, but not the command line, which may have a password.
func TestProfiles(t *testing.T) {
	o := (&engine{}).options()
	p, at := served(t, o)
	get := func(path string) (code int, body string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", at+"/debug/pprof/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer w.Body.Close()
		all, err := io.ReadAll(w.Body)
		if err != nil {
			t.Error(err)
		}
		return w.StatusCode, string(all)
	}
	_, list := get("")
	for _, name := range []string{"allocs", "goroutine", "heap", "block", "mutex", "profile", "trace"} {
		if !strings.Contains(list, name) {
			t.Errorf("%s is not in the list", name)
		}
		code, head := get(name + "?seconds=1")
		if begins := map[bool]string{true: "go 1.", false: "\x1f\x8b"}[name == "trace"]; code != 200 || !strings.HasPrefix(head, begins) {
			t.Errorf("%s: %d %.20q", name, code, head)
		}
	}
	if _, got := get("goroutine?debug=2"); !strings.Contains(got, "TestProfiles") {
		t.Errorf("goroutines as text: %.100s", got)
	}
	for path, want := range map[string]int{"cmdline": 404, "symbol": 404, "x": 404, "profile?seconds=31": 400, "trace?seconds=1e9": 400, "heap?seconds=NaN": 400, "trace?seconds=Inf": 400} {
		if code, body := get(path); code != want || strings.Contains(body, os.Args[0]) {
			t.Errorf("%s: %d %.100s", path, code, body)
		}
	}
	gone := make(chan string)
	go func() { _, body := get("profile?seconds=30"); gone <- body }()
	for deadline := time.Now().Add(10 * time.Second); p.profiling.TryLock(); time.Sleep(time.Millisecond) {
		p.profiling.Unlock()
		if time.Now().After(deadline) {
			t.Fatal("no profile is taken")
		}
	}
	if code, _ := get("heap"); code != http.StatusConflict {
		t.Errorf("a second one: %d", code)
	}
	p.Close()
	select {
	case <-gone:
	case <-time.After(20 * time.Second):
		t.Error("a profile outlives the page")
	}
}
