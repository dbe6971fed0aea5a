package stable

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/inforce"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/page"
	"github.com/lockproxy/lockproxy/internal/proxies"
)

// everything is an engine, and proxies, that have something of all that there may be.
type everything struct{}

func (everything) Info(context.Context, int, string) (lock.Info, error) {
	info := filled[lock.Info]()
	info.Holders[0].Owner = "one whom no proxy knows: \xff"
	return info, errors.New("Redis does not say")
}
func (everything) Stats() lock.Stats             { return lock.Stats{} }
func (everything) Able() ([]lock.Ability, error) { return nil, errors.New("no lock can be had") }

func (everything) Ask(context.Context, proxies.Question) proxies.Overview {
	view := proxies.Overview{Locks: []proxies.Lock{filled[proxies.Lock]()}, Events: []events.Event{filled[events.Event]()}, Of: 1,
		Proxies: []proxies.State{filled[proxies.State]()}}
	view.Events[0].Kind = events.Loss
	view.Proxies[0].State = "down"
	return view
}
func (everything) Of(context.Context, string) (proxies.State, bool) { return proxies.State{}, true }
func (everything) Freed(context.Context, int, string)               {}

// fullPage is the page of a proxy of which everything can be told.
func fullPage() *page.Page {
	return page.New(page.Options{
		Locks: everything{}, Proxies: everything{}, Events: events.New(nil, ""), Log: slog.New(slog.DiscardHandler), About: page.About{Proxy: "id"},
		People: page.People{
			InForce: filled[inforce.State],
			Clients: func(int, string) ([]page.Client, int) { return []page.Client{filled[page.Client]()}, 1 },
			Drain:   func() *inforce.Drain { return nil },
		},
		Trouble: func(context.Context) []string { return []string{"trouble"} },
		Nodes:   func(context.Context) []page.Node { return []page.Node{filled[page.Node]()} },
	})
}

// answered asks a page for a path.
func answered(t *testing.T, p *page.Page, path string) []byte {
	t.Helper()
	w := httptest.NewRecorder()
	p.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:9181"+path, nil))
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.Bytes()
}

var jsonRoute = regexp.MustCompile(`"GET (/[a-z]+\.json|/locks/\{name\.\.\.\})"`)

// TestJSON: the paths that answer with JSON, and the fields of their answers.
func TestJSON(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile(filepath.Join("..", "..", "internal", "page", "page.go"))
	if err != nil {
		t.Fatal(err)
	}
	p := fullPage()
	t.Cleanup(p.Close)
	var now []string
	for _, route := range jsonRoute.FindAllSubmatch(source, -1) {
		path := strings.Replace(string(route[1]), "{name...}", "NAME.json", 1)
		for _, field := range fieldsIn(t, answered(t, p, path)) {
			now = append(now, path+" "+field)
		}
	}
	slices.Sort(now)
	hold(t, "json", now)
}
