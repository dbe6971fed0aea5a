package page

import (
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
