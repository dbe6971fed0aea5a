package page

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/proxies"
)

// sendJSON answers with a value as JSON.
func sendJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false) // it is no HTML document
	_ = out.Encode(value)    // whoever asked has hung up if this fails
}

// nodesJSON answers how the proxy and its nodes are.
func (p *Page) nodesJSON(w http.ResponseWriter, r *http.Request) {
	answer := struct {
		Proxy   string   `json:"proxy"`
		Ready   bool     `json:"ready"`
		Trouble []string `json:"trouble"`
		NoLocks string   `json:"no_locks,omitempty"`
		Nodes   []Node   `json:"nodes"`
	}{Proxy: p.About.Proxy}
	trouble, nodes := p.health.now(r.Context(), p)
	answer.Ready, answer.Trouble, answer.Nodes = len(trouble) == 0, append([]string{}, trouble...), append([]Node{}, nodes...)
	if _, err := p.Able(); err != nil {
		answer.NoLocks = err.Error()
	}
	sendJSON(w, answer)
}

// locksJSON answers with locks: here=1 those of this proxy alone, name a part of their names, sort as on the page, limit
// how many.
func (p *Page) locksJSON(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, err := strconv.Atoi(cmp.Or(q.Get("limit"), strconv.Itoa(mostRows)))
	if err != nil || limit < 0 {
		http.Error(w, "limit is a number", http.StatusBadRequest)
		return
	}
	which := asked(r)
	which.Of = mostOfOne
	view := p.Ask(r.Context(), which)
	sendJSON(w, struct {
		summary
		Locks []proxies.Lock `json:"locks"`
	}{p.summary(view), append([]proxies.Lock{}, view.Locks[:min(limit, len(view.Locks))]...)})
}

// summary is whose answers an answer in JSON has.
type summary struct {
	Proxy  string   `json:"proxy"`
	Of     int      `json:"of"` // how many there are
	Age    int64    `json:"age_ms"`
	Silent []string `json:"silent"` // proxies that have not answered
}

func (p *Page) summary(v proxies.Overview) summary {
	return summary{p.About.Proxy, v.Of, time.Since(v.At).Milliseconds(), append([]string{}, v.Silent()...)}
}

// proxiesJSON answers with this proxy and the others.
func (p *Page) proxiesJSON(w http.ResponseWriter, r *http.Request) {
	view := p.Ask(r.Context(), proxies.Question{})
	sendJSON(w, struct {
		Age     int64           `json:"age_ms"`
		Proxies []proxies.State `json:"proxies"`
	}{time.Since(view.At).Milliseconds(), view.Proxies})
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
		proxies.Lock
		Kind    string `json:"kind"` // as in LOCKINFO
		TTL     int64  `json:"ttl_ms"`
		Queue   int64  `json:"queue"` // so many wait in the fair queue
		Fence   *int64 `json:"fence"`
		Trouble string `json:"trouble,omitempty"` // why Redis does not say
		Others  []away `json:"other_holders"`     // whom no proxy that was asked knows
	}{Lock: d.Lock, Kind: d.Info.Kind, TTL: d.Info.TTL, Queue: d.Info.Queue,
		Trouble: d.Trouble, Others: append([]away{}, d.Away...)}
	if d.Info.Fenced {
		answer.Fence = &d.Info.Token
	}
	sendJSON(w, answer)
}
