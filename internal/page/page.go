// Package page is the page for people who run the proxy: which locks are held and waited for, how the nodes are, what
// was lost. It frees a lock by force when somebody who may do that says so twice.
package page

import (
	"bytes"
	"context"
	"embed"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/inforce"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/proxies"
	"github.com/lockproxy/lockproxy/internal/webserver"
)

const (
	// mostRows is how many locks are shown at once, mostOf how many holders and waiters of each. The numbers say how
	// many there are.
	mostRows, mostOf = proxies.MostRows, 4
	// mostOfOne is how many holders and waiters the page of one lock shows.
	mostOfOne = proxies.MostOf
	// mostFilter is how long a filter may be, in bytes.
	mostFilter = 256
)

// Locks is the lock engine, as far as the page shows it.
type Locks interface {
	Info(ctx context.Context, db int, key string) (lock.Info, error)
	Stats() lock.Stats
	Able() (where []lock.Ability, err error)
}

// Proxies are this proxy and the others: see proxies.Exchange.
type Proxies interface {
	Ask(ctx context.Context, q proxies.Question) proxies.Overview
	Of(ctx context.Context, owner string) (of proxies.State, none bool)
	Freed(ctx context.Context, db int, key string)
}

// Options set a page up.
type Options struct {
	Locks
	Force func(ctx context.Context, by lock.ClientInfo, r lock.UnlockRequest) (bool, error) // UNLOCK
	// Search makes a step of a scan for locks in Redis, from a cursor, and says where the next goes on: at "0" nowhere.
	Search func(ctx context.Context, db int, match, cursor string) (next string, found []lock.Found, err error)
	Proxies
	People
	// How they are; asked while somebody looks.
	Nodes func(context.Context) []Node
	// Why clients are not served; none: they are.
	Trouble     func(context.Context) []string
	About       About
	Credentials Credentials
	Log         *slog.Logger
	Events      *events.Log
}

// People are those whom the proxy serves, and what its operator has set.
type People struct {
	InForce func() inforce.State
	Drain   func() *inforce.Drain // how far a drain is; nil: there is none
	// Clients are so many of those that have a text in their address, name or user, those with most locks first, and how
	// many have it.
	Clients func(most int, part string) (some []Client, of int)
	// Kill closes the client that has both, unless it has gone, and notes by whom. Its locks expire.
	Kill func(id int64, addr, by string) bool
}

// About is what the page says of the proxy.
type About struct {
	Version, Proxy, Upstream string // Proxy is its id, by which it is in owners
	Started                  time.Time
}

// Node is one Redis behind the proxy, as it was a moment ago.
type Node struct {
	Name    string  `json:"name"`
	Role    string  `json:"role"`
	State   string  `json:"state"`              // up, young or down
	Trouble string  `json:"trouble,omitempty"`  // why it is not up
	Took    float64 `json:"took_ms,omitempty"`  // to answer; 0: not known
	NoLocks string  `json:"no_locks,omitempty"` // why no lock can be had there; "": they can, or it keeps none
}

// Page is the page's server.
type Page struct {
	Options
	guard  guard
	health health
	parts  sync.WaitGroup
	server *webserver.Server // nil before Listen
}

// New is a page that is not served yet.
func New(o Options) *Page {
	return &Page{Options: o, guard: guard{Credentials: o.Credentials, log: o.Log, events: o.Events}}
}

//go:embed assets
var assets embed.FS

// Handler answers for all of the page.
func (p *Page) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range p.routes() {
		mux.Handle(r.pattern, r.handler)
	}
	return p.guard.protect(mux)
}

// route is a pattern of paths, and what answers there.
type route struct {
	pattern string
	handler http.HandlerFunc
}

// routes are all that the page answers. The tests of the guard go through them.
func (p *Page) routes() []route {
	all := []route{
		{"GET /parts", p.fresh},
		{"GET /lock", p.one},
		{"POST /lock", p.force},
		{"GET /redis", p.search},
		{"GET /nodes.json", p.nodesJSON},
		{"GET /events.json", p.eventsJSON},
		{"GET /locks.json", p.locksJSON},
		{"GET /locks/{name...}", p.oneJSON},
		{"GET /proxies.json", p.proxiesJSON},
		{"GET /client", p.aClient},
		{"POST /client", p.kill},
		{"GET /clients.json", p.clientsJSON},
		{"GET /settings.json", p.settingsJSON},
	}
	for _, s := range sheets() {
		all = append(all, route{"GET " + either(s.path == "/", "/{$}", s.path), p.serve(s)})
	}
	for _, name := range []string{"style.css", "page.js", "icon.svg"} {
		all = append(all, route{"GET /" + name, asset(name)})
	}
	return all
}

func asset(name string) http.HandlerFunc {
	content, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // it is embedded; every test finds it
	}
	return func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	}
}

// asked is which locks a request wants to see.
func asked(r *http.Request) proxies.Question {
	q := r.URL.Query()
	name := q.Get("name")
	which := proxies.Question{Name: []byte(name[:min(len(name), mostFilter)]), Locks: mostRows, Of: mostOf, Here: q.Get("here") == "1"}
	if sort := q.Get("sort"); sort == "name" || sort == "held" {
		which.Sort = sort
	}
	return which
}

// sendPage answers with the document.
func (d *document) sendPage(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, d.String()) // whoever asked has hung up if this fails
}
