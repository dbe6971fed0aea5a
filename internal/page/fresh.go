package page

import (
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// rest is the time between two questions of a browser that looks, or two hundred times as long as the answer has
	// taken to make: with what the garbage costs afterwards each takes a hundredth of a processor at most.
	rest     = time.Second
	restMost = 10 * time.Second
)

// news is what a browser that looks is told.
type news struct {
	Next  int64           `json:"next"`  // in how many ms to ask again
	Parts map[string]part `json:"parts"` // those that are not as the browser has them
}

// part is one part of the page. The browser says the marks of those that it has when it asks again.
type part struct {
	HTML string `json:"html"`
	Mark string `json:"mark"`
}

// fresh answers with each part of a page that has changed: page is its path, and the rest of the query is the page's. Nothing is kept for a browser between two questions, and
// no connection either: a browser has six to one server, however many windows look.
func (p *Page) fresh(w http.ResponseWriter, r *http.Request) {
	at := slices.IndexFunc(sheets(), func(s sheet) bool { return s.path == r.URL.Query().Get("page") })
	if at < 0 {
		http.Error(w, "parts of which page?", http.StatusBadRequest)
		return
	}
	s := sheets()[at]
	status := section{name: "status", draw: func(d *document) { d.status(p.frame(r.Context(), s.path)) }}
	all := append(s.sections(p, r), status) // other proxies and nodes are waited for: only what is work of this process is rested for
	began := time.Now()
	parts := changed(all, strings.Split(r.URL.Query().Get("have"), ","))
	sendJSON(w, news{Next: restAfter(time.Since(began)).Milliseconds(), Parts: parts})
}

// changed are the parts whose marks are not among those that a browser has.
func changed(all []section, have []string) map[string]part {
	parts := map[string]part{}
	for _, one := range all {
		if one.draw == nil {
			continue
		}
		var d document
		one.draw(&d)
		if mark := markOf(one.name, d.String()); !slices.Contains(have, mark) {
			parts[one.name] = part{d.String(), mark}
		}
	}
	return parts
}

func markOf(name, html string) string {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(name + html)) // it never fails
	return strconv.FormatUint(sum.Sum64(), 36)
}

// restAfter is in how long a browser is to ask again, whose answer took so long to make.
func restAfter(took time.Duration) time.Duration { return min(max(rest, 200*took), restMost) }
