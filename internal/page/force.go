package page

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/proxies"
)

// detail is the page of one lock: its holders are those that Redis names, as far as it answers.
type detail struct {
	*frame
	proxies.Lock
	at      map[string]string // the other proxies, by their ids
	Info    lock.Info
	Away    []away    // those that hold it, but are not among the holders that this proxy knows
	Trouble string    // why Redis does not say
	Said    string    // what became of the force
	Failed  string    // why nothing did
	Asked   time.Time // when this was so
}

// away is a holder of which only Redis knows.
type away struct {
	lockstore.Owned
	OwnerBytes []byte `json:"owner_base64,omitempty"` // of an owner that is no UTF-8
	Where      string `json:"where"`
}

// From are the holders that are shown, as the form names those that a force takes the lock from.
func (d *detail) From() (all []string) {
	if d.Trouble != "" {
		return nil // who holds it is not known
	}
	for _, h := range d.Info.Holders[:min(len(d.Info.Holders), mostOfOne)] {
		all = append(all, holderText(h.Owned))
	}
	return all
}

// holderText is a holder in a form: its kind, and the bytes of its owner escaped, since a form would change what is no
// UTF-8.
func holderText(o lockstore.Owned) string { return o.Kind.String() + ":" + url.PathEscape(o.Owner) }

func parseHolder(text string) (o lockstore.Owned, ok bool) {
	kind, owner, _ := strings.Cut(text, ":")
	owner, err := url.PathUnescape(owner)
	o.Owner = owner
	return o, err == nil && o.Kind.UnmarshalText([]byte(kind)) == nil
}

// said is what became of a force.
var said = map[string]string{"freed": "It was freed.", "free": "Nobody held it.", "other": "Nothing was freed: whoever was shown holds it no longer."}

// named is the lock that a request is about. Names are bytes, which are in the address: a form would change what is no
// UTF-8. A name may be empty.
func named(r *http.Request) (db int, key string, ok bool) {
	q := r.URL.Query()
	db, ok = database(q.Get("db"))
	key = q.Get("name")
	return db, key, ok && q.Has("name") && len(key) <= lockstore.MaxName
}

// database reads the number of a database.
func database(text string) (db int, ok bool) {
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), err == nil
}

// one shows one lock, with what Redis says of it, and asks whether it is to be freed.
func (p *Page) one(w http.ResponseWriter, r *http.Request) {
	db, key, ok := named(r)
	if !ok {
		http.Error(w, "which lock?", http.StatusBadRequest)
		return
	}
	p.show(w, http.StatusOK, p.detail(r, db, key, said[r.URL.Query().Get("said")], ""))
}

func (p *Page) show(w http.ResponseWriter, status int, of *detail) {
	var d document
	d.one(of)
	d.sendPage(w, status)
}

// detail asks Redis who has a lock, and adds what this proxy knows of them and of those who wait. A holder of which
// Redis knows nothing has lost the lock, or given it back, and a waiter that Redis names has got it: the proxy is about
// to hear of it.
func (p *Page) detail(r *http.Request, db int, key, said, failed string) *detail {
	d := &detail{frame: p.frame(r.Context(), ""), Said: said, Failed: failed, Asked: time.Now()}
	var err error
	if d.Info, err = p.Info(r.Context(), db, key); err != nil {
		d.Trouble = err.Error()
	}
	view := p.Ask(r.Context(), proxies.Question{Name: []byte(key), Exact: true, DB: db, Locks: 1, Of: mostOfOne})
	d.at = others(view)
	if len(view.Locks) > 0 {
		d.Lock = view.Locks[0]
	} else {
		d.DB, d.Name, d.Bytes = db, key, proxies.Bytes(key)
	}
	holds := func(e lock.Entry) bool {
		return slices.ContainsFunc(d.Info.Holders, func(h lock.Holder) bool { return same(h.Owned, e) })
	}
	d.Waiters = slices.DeleteFunc(slices.Clone(d.Waiters), holds)
	d.Holders = slices.DeleteFunc(slices.Clone(d.Holders), func(e lock.Entry) bool { return err == nil && !holds(e) })
	for _, h := range d.Info.Holders {
		known := slices.ContainsFunc(d.Holders, func(e lock.Entry) bool { return same(h.Owned, e) })
		if !known && len(d.Away) < mostOfOne {
			d.Away = append(d.Away, p.away(r.Context(), h))
		}
	}
	return d
}

// same says whether two are one hold of a lock, however often it is counted.
func same(a lockstore.Owned, b lock.Entry) bool {
	return a.Owner == b.Owner && a.Kind == b.Kind
}

// mostForm is how long a form may be, in bytes: an owner may have 256, each as %xx.
const mostForm = mostOfOne << 10

// force frees a lock, as UNLOCK FORCE does, and leaves the same line in the log. The page's form names the holders that
// were shown: whoever else has the lock meanwhile keeps it. Their proxies are told, so that they hear of it at once.
func (p *Page) force(w http.ResponseWriter, r *http.Request) {
	db, key, ok := named(r)
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	if !ok || r.PostFormValue("sure") != "yes" {
		http.Error(w, "nothing was freed: say which lock, and that you are sure", http.StatusBadRequest)
		return
	}
	asked := lock.UnlockRequest{DB: db, Key: key, Force: true}
	for _, text := range r.PostForm["holder"] {
		holder, ok := parseHolder(text)
		if !ok {
			http.Error(w, "nothing was freed: that is no holder", http.StatusBadRequest)
			return
		}
		asked.From = append(asked.From, holder)
	}
	by := lock.ClientInfo{Addr: r.RemoteAddr, User: func() string { return p.guard.who(r) }, Name: func() string { return "admin page" }}
	freed, err := p.Force(r.Context(), by, asked)
	if freed || err != nil {
		p.Freed(r.Context(), db, key)
	}
	if err != nil {
		p.show(w, http.StatusBadGateway, p.detail(r, db, key, "", err.Error()))
		return
	}
	word := "free"
	switch {
	case freed:
		word = "freed"
	case asked.From != nil:
		word = "other"
	}
	http.Redirect(w, r, "/lock?"+url.Values{"db": {strconv.Itoa(db)}, "name": {key}, "said": {word}}.Encode(), http.StatusSeeOther)
}
