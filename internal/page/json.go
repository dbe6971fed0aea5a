package page

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// sendJSON answers with a value as JSON.
func sendJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false) // it is no HTML document
	_ = out.Encode(value)    // whoever asked has hung up if this fails
}

// nodeJSON is one Redis in /nodes.json.
type nodeJSON struct {
	Name    string  `json:"name"`
	Role    string  `json:"role"`
	State   string  `json:"state"`
	Trouble string  `json:"trouble,omitempty"`
	Took    float64 `json:"took_ms,omitempty"`
	NoLocks string  `json:"no_locks,omitempty"`
}

// nodesJSON answers how the proxy and its nodes are.
func (p *Page) nodesJSON(w http.ResponseWriter, r *http.Request) {
	answer := struct {
		Proxy   string     `json:"proxy"`
		Ready   bool       `json:"ready"`
		Trouble []string   `json:"trouble"`
		NoLocks string     `json:"no_locks,omitempty"`
		Nodes   []nodeJSON `json:"nodes"`
	}{Proxy: p.About.Proxy, Trouble: []string{}, Nodes: []nodeJSON{}}
	trouble, nodes := p.health.now(r.Context(), p)
	answer.Ready, answer.Trouble = len(trouble) == 0, append(answer.Trouble, trouble...)
	if _, err := p.Able(); err != nil {
		answer.NoLocks = err.Error()
	}
	for _, n := range nodes {
		answer.Nodes = append(answer.Nodes, nodeJSON{Name: n.Name, Role: n.Role, State: n.State, Trouble: n.Trouble,
			Took: float64(n.Took) / float64(time.Millisecond), NoLocks: n.NoLocks})
	}
	sendJSON(w, answer)
}

// nameJSON is a name, which may be any bytes.
type nameJSON struct {
	Text  string `json:"name"`                  // with U+FFFD for what is no UTF-8
	Bytes []byte `json:"name_base64,omitempty"` // what it is then
}

func nameOf(name string) nameJSON {
	if utf8.ValidString(name) {
		return nameJSON{Text: name}
	}
	return nameJSON{name, []byte(name)}
}

func (n nameJSON) String() string { return either(n.Bytes == nil, n.Text, string(n.Bytes)) }

// locksJSON is /locks.json.
type locksJSON struct {
	Proxy string     `json:"proxy"`
	Of    int        `json:"of"` // how many there are
	Locks []lockJSON `json:"locks"`
}

// lockJSON is one lock.
type lockJSON struct {
	nameJSON
	DB      int         `json:"db"`
	Holding int         `json:"holding"` // so many hold it, and wait
	Waiting int         `json:"waiting"`
	Holders []entryJSON `json:"holders"`
	Waiters []entryJSON `json:"waiters"`
}

// entryJSON is one who holds a lock, or waits for it. Its fields are those of LOCKPROXY LOCKS and WAITERS.
type entryJSON struct {
	Owner      string `json:"owner"`
	OwnerBytes []byte `json:"owner_base64,omitempty"`
	Kind       string `json:"kind"` // plain, read or write; fair: it waits in the fair queue
	Proxy      string `json:"proxy"`
	Client     int64  `json:"client_id"`
	Addr       string `json:"addr"`
	Name       string `json:"name"`
	User       string `json:"user"`
	Held       int64  `json:"held_ms,omitempty"`
	Waited     int64  `json:"waiting_ms,omitempty"`
	Place      int    `json:"place,omitempty"`
	Holds      int64  `json:"holds,omitempty"`
	Left       int64  `json:"ttl_ms,omitempty"`
	Lease      int64  `json:"lease_ms,omitempty"`
	Watched    bool   `json:"watched,omitempty"`
	Renewals   int64  `json:"renewals,omitempty"`
}

// lockOf is a lock, with so many holders and waiters at most, as it is so long after it was seen.
func (p *Page) lockOf(r *row, since time.Duration, most int) lockJSON {
	l := lockJSON{nameJSON: nameOf(r.Key), DB: r.DB, Holding: len(r.held), Waiting: len(r.waiters)}
	l.Holders, l.Waiters = make([]entryJSON, 0, min(most, len(r.held))), make([]entryJSON, 0, min(most, len(r.waiters)))
	for _, e := range r.held[:min(most, len(r.held))] {
		l.Holders = append(l.Holders, p.entryOf(e, since))
	}
	for _, e := range r.waiters[:min(most, len(r.waiters))] {
		l.Waiters = append(l.Waiters, p.entryOf(e, since))
	}
	return l
}

func (p *Page) entryOf(e lock.Entry, since time.Duration) entryJSON {
	owner := nameOf(e.Owner)
	j := entryJSON{Owner: owner.Text, OwnerBytes: owner.Bytes, Proxy: cmp.Or(e.Proxy, p.About.Proxy),
		Kind:   either(e.Fair, "fair", e.Kind.String()),
		Client: e.ClientID, Addr: e.Addr, Name: e.Name, User: e.User}
	if e.Waiting {
		j.Waited, j.Place = (e.Held + since).Milliseconds(), e.Place
		return j
	}
	j.Held, j.Holds, j.Left = (e.Held + since).Milliseconds(), e.Holds, max(0, e.Left-since).Milliseconds()
	j.Lease, j.Watched, j.Renewals = e.Lease.Milliseconds(), e.Watched, e.Renewals
	return j
}

// entries are what the proxy has told that it holds, and waits for.
func (l *locksJSON) entries() (all []lock.Entry, holds int) {
	for i := range l.Locks {
		of := &l.Locks[i]
		key := of.String()
		for _, e := range of.Holders {
			all = append(all, e.entry(l.Proxy, key, of.DB))
		}
		holds += len(of.Holders)
		for _, e := range of.Waiters {
			one := e.entry(l.Proxy, key, of.DB)
			one.Waiting, one.Place, one.Held = true, e.Place, time.Duration(e.Waited)*time.Millisecond
			all = append(all, one)
		}
	}
	return all, holds
}

func (j *entryJSON) entry(proxy, key string, db int) lock.Entry {
	e := lock.Entry{DB: db, Key: key, Proxy: proxy, Fair: j.Kind == "fair", Left: time.Duration(j.Left) * time.Millisecond}
	owner := nameJSON{j.Owner, j.OwnerBytes}
	e.Owned = lockstore.Owned{Owner: owner.String(), Kind: kinds[j.Kind], Holds: j.Holds}
	e.ClientID, e.Addr, e.Name, e.User = j.Client, j.Addr, j.Name, j.User
	e.Held, e.Lease = time.Duration(j.Held)*time.Millisecond, time.Duration(j.Lease)*time.Millisecond
	e.Watched, e.Renewals = j.Watched, j.Renewals
	return e
}

// kinds are those of holds, by their names; of all others it is plain.
var kinds = map[string]lock.Kind{lock.Read.String(): lock.Read, lock.Write.String(): lock.Write}

// locksJSON answers with locks: here=1 those of this proxy alone, name a part of their names, sort as on the page, limit
// how many.
func (p *Page) locksJSON(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, err := strconv.Atoi(cmp.Or(q.Get("limit"), strconv.Itoa(mostRows)))
	if err != nil || limit < 0 {
		http.Error(w, "limit is a number", http.StatusBadRequest)
		return
	}
	answer := locksJSON{Proxy: p.About.Proxy, Locks: []lockJSON{}}
	if q.Get("here") == "1" {
		rows, _ := group(p.List("", ""))
		answer.Of = len(rows)
		left := mostEntries
		for i := 0; i < len(rows) && left > 0; i++ {
			one := p.lockOf(&rows[i], 0, left)
			left -= len(one.Holders) + len(one.Waiters)
			answer.Locks = append(answer.Locks, one)
		}
		sendJSON(w, answer)
		return
	}
	p.ask(r.Context())
	all, _ := p.locks()
	var some []row
	some, answer.Of = choose(all, asked(r), min(limit, mostEntries))
	since := time.Since(p.takenAt())
	for i := range some {
		answer.Locks = append(answer.Locks, p.lockOf(&some[i], since, mostOfOne))
	}
	sendJSON(w, answer)
}

// proxyJSON is one proxy.
type proxyJSON struct {
	ID      string    `json:"id"`
	Host    string    `json:"host"`
	Addr    string    `json:"addr"`
	Page    string    `json:"page"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	State   string    `json:"state"`
	Since   time.Time `json:"since"`
	Trouble string    `json:"trouble,omitempty"`
	Holds   int       `json:"holds"`
	Waits   int       `json:"waits"`
}

// proxiesJSON answers with this proxy and the others.
func (p *Page) proxiesJSON(w http.ResponseWriter, r *http.Request) {
	answer := struct {
		Proxies []proxyJSON `json:"proxies"`
	}{}
	for _, s := range p.AllProxies(r.Context()) {
		answer.Proxies = append(answer.Proxies, proxyJSON{s.ID, s.Host, s.Addr, s.Page, s.Version, s.Started.UTC(), s.State,
			s.Since.UTC(), s.Trouble, s.Holds, s.Waits})
	}
	sendJSON(w, answer)
}

// oneJSON answers with one lock, as Redis and the proxies know it: /locks/NAME.json?db=0.
func (p *Page) oneJSON(w http.ResponseWriter, r *http.Request) {
	name, is := strings.CutSuffix(r.PathValue("name"), ".json")
	db, number := database(cmp.Or(r.URL.Query().Get("db"), "0"))
	switch {
	case !is, !number, len(name) > lockstore.MaxName:
		http.Error(w, "which lock? /locks/NAME.json?db=0", http.StatusBadRequest)
		return
	}
	d := p.detail(r, db, name, "", "")
	answer := struct {
		lockJSON
		Kind    string     `json:"kind"` // as in LOCKINFO
		TTL     int64      `json:"ttl_ms"`
		Queue   int64      `json:"queue"` // so many wait in the fair queue
		Fence   *int64     `json:"fence"`
		Trouble string     `json:"trouble,omitempty"` // why Redis does not say
		Others  []awayJSON `json:"other_holders"`     // whom no proxy that was asked knows
	}{lockJSON: p.lockOf(&d.row, 0, mostOfOne), Kind: d.Info.Kind, TTL: d.Info.TTL, Queue: d.Info.Queue,
		Trouble: d.Trouble, Others: []awayJSON{}}
	if d.Info.Fenced {
		answer.Fence = &d.Info.Token
	}
	for _, a := range d.Away {
		owner := nameOf(a.Owner)
		answer.Others = append(answer.Others, awayJSON{owner.Text, owner.Bytes, a.Kind.String(), a.Holds, a.Where})
	}
	sendJSON(w, answer)
}

// awayJSON is a holder of which only Redis knows.
type awayJSON struct {
	Owner      string `json:"owner"`
	OwnerBytes []byte `json:"owner_base64,omitempty"`
	Kind       string `json:"kind"`
	Holds      int64  `json:"holds"`
	Where      string `json:"where"`
}
