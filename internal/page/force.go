package page

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// detail is the page of one lock.
type detail struct {
	About
	row
	Info    lock.Info
	Away    []lock.Holder // those that hold it, but not through this proxy
	Trouble string        // why Redis does not say
	Said    string        // what became of the force
	Failed  string        // why nothing did
}

// Seconds is what is left of the lease in Redis.
func (d *detail) Seconds() float64 { return float64(d.Info.TTL) / 1000 }

// said is what became of a force.
var said = map[string]string{"freed": "It was freed.", "free": "Nobody held it."}

// named is the lock that a request is about. Names are bytes, which are in the address: a form would change what is no UTF-8.
// A name may be empty.
func named(r *http.Request) (db int, key string, ok bool) {
	q := r.URL.Query()
	db, err := strconv.Atoi(q.Get("db"))
	key = q.Get("name")
	return db, key, err == nil && db >= 0 && q.Has("name") && len(key) <= lockstore.MaxName
}

// one shows one lock, with what Redis says of it, and asks whether it is to be freed.
func (p *Page) one(w http.ResponseWriter, r *http.Request) {
	db, key, ok := named(r)
	if !ok {
		http.Error(w, "which lock?", http.StatusBadRequest)
		return
	}
	p.render(w, http.StatusOK, "one", p.detail(r, db, key, said[r.URL.Query().Get("said")], ""))
}

func (p *Page) detail(r *http.Request, db int, key, said, failed string) *detail {
	d := &detail{About: p.About, row: row{DB: db, Key: key}, Said: said, Failed: failed}
	for _, e := range p.List("", "") {
		switch {
		case e.Key != key || e.DB != db:
		case e.Waiting:
			d.waiters = append(d.waiters, e)
		default:
			d.held = append(d.held, e)
		}
	}
	d.describe(0, mostOfOne)
	var err error
	if d.Info, err = p.Info(r.Context(), db, key); err != nil {
		d.Trouble = err.Error()
	}
	for _, h := range d.Info.Holders {
		if !h.Local && len(d.Away) < mostOfOne {
			d.Away = append(d.Away, h)
		}
	}
	return d
}

// force frees a lock, as UNLOCK FORCE does, and leaves the same line in the log.
func (p *Page) force(w http.ResponseWriter, r *http.Request) {
	db, key, ok := named(r)
	r.Body = http.MaxBytesReader(w, r.Body, 1<<10)
	if !ok || r.PostFormValue("sure") != "yes" {
		http.Error(w, "nothing was freed: say which lock, and that you are sure", http.StatusBadRequest)
		return
	}
	by := lock.ClientInfo{Addr: r.RemoteAddr, User: func() string { return p.guard.who(r) }, Name: func() string { return "admin page" }}
	freed, err := p.Force(r.Context(), by, lock.UnlockRequest{DB: db, Key: key, Force: true})
	if err != nil {
		p.render(w, http.StatusBadGateway, "one", p.detail(r, db, key, "", err.Error()))
		return
	}
	word := "free"
	if freed {
		word = "freed"
	}
	http.Redirect(w, r, "/lock?"+url.Values{"db": {strconv.Itoa(db)}, "name": {key}, "said": {word}}.Encode(), http.StatusSeeOther)
}
