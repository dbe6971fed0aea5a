package page

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/proxies"
)

const (
	// KeysAtOnce is about how many keys a step of a search looks at. A page makes mostSteps at most, and none after it
	// has enoughFound locks, or after searchTime.
	KeysAtOnce             = 200
	mostSteps, enoughFound = 50, 100
	searchTime             = 5 * time.Second
)

// search is what was found in Redis.
type search struct {
	*frame
	Match   string
	DB      int
	Found   []found
	Next    string // the cursor for more; "0": that was all
	Trouble string // why there is not more
}

// found is a lock in Redis, with some of its holders.
type found struct {
	lock.Found
	Shown []away
}

// search shows the locks in Redis that a pattern fits, whoever holds them. A name that is no pattern leads to its lock,
// for which nobody needs a right to scan.
func (p *Page) search(w http.ResponseWriter, r *http.Request) {
	db, match, ok := named(r)
	switch {
	case !ok:
		http.Error(w, "which lock, in which database?", http.StatusBadRequest)
		return
	case match != "" && !strings.ContainsAny(match, `*?[\`):
		http.Redirect(w, r, address(db, match), http.StatusSeeOther)
		return
	}
	s := &search{frame: p.frame(r.Context(), ""), Match: cmp.Or(match, "*"), DB: db, Next: cmp.Or(r.URL.Query().Get("cursor"), "0")}
	p.findKeys(r.Context(), s)
	var d document
	d.search(s)
	d.sendPage(w, http.StatusOK)
}

// findKeys makes some steps of a search.
func (p *Page) findKeys(ctx context.Context, s *search) {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	for range mostSteps {
		next, some, err := p.Search(ctx, s.DB, s.Match, s.Next)
		if err != nil {
			s.Trouble = err.Error()
			if strings.HasPrefix(s.Trouble, "NOPERM") { // whoever reads the page is no user of Redis
				s.Trouble = "Redis refuses the service account, the user in --upstream: " + s.Trouble
			}
			return
		}
		s.Next = next
		for _, one := range some {
			f := found{Found: one}
			for _, h := range one.Holders[:min(len(one.Holders), mostOf)] {
				f.Shown = append(f.Shown, p.away(ctx, h))
			}
			s.Found = append(s.Found, f)
		}
		if next == "0" || len(s.Found) >= enoughFound {
			return
		}
	}
}

// away is a holder that Redis names.
func (p *Page) away(ctx context.Context, h lock.Holder) away {
	return away{h.Owned, proxies.Bytes(h.Owner), p.where(ctx, h)}
}

// where says of a holder that Redis names where it is, as far as that is known.
func (p *Page) where(ctx context.Context, h lock.Holder) string {
	uuid, _, is := lockstore.ConnectionIn(h.Owner)
	switch {
	case h.Local:
		return "through this proxy"
	case uuid == p.About.Proxy:
		return "through this proxy, since a moment ago"
	case !is:
		return "a named owner, through any proxy"
	}
	switch other, none := p.Proxies.Of(ctx, h.Owner); {
	case other.ID != "":
		return "through the proxy at " + other.Title() + either(other.State == "gone", ", which has gone", "")
	case none:
		return "Redisson: getId() and thread"
	}
	return "through another proxy, or Redisson"
}

// searching draws the form that looks for locks in Redis.
func (d *document) searching(match string, db int) {
	d.put(`<form method="get" action="/redis" role="search">
<label>Name in Redis <input id="match" name="name" type="search" value="%s" maxlength="256" `+
		`placeholder="a name, or orders:*" autocomplete="off" spellcheck="false"></label>
<label>Database <input name="db" type="number" min="0" value="%d"></label>
<button id="ask">Ask Redis</button>
</form>
`, match, db)
}

// search is the page of what was found in Redis.
func (d *document) search(s *search) {
	d.openFrame(s.frame, "Locks in Redis", false)
	d.put(`<div class="bar"><h2>Locks in Redis</h2>
`)
	d.searching(s.Match, s.DB)
	d.put("</div>\n")
	d.textIf(`<p class="said bad" role="alert">%s</p>`+"\n", display.Whole(s.Trouble))
	if len(s.Found) == 0 {
		d.empty("No lock was found.")
	} else {
		d.found(s)
	}
	more := url.Values{"db": {strconv.Itoa(s.DB)}, "name": {s.Match}, "cursor": {s.Next}}.Encode()
	d.when(s.Next != "0", `<p>Not all keys were looked at. <a id="more" href="/redis?%s">Go on</a></p>`+"\n", more)
	d.closeFrame(s.frame)
}

// found draws the locks that were found.
func (d *document) found(s *search) {
	d.put(`<table class="list locks">
<thead><tr><th scope="col">Lock</th><th scope="col">Mode</th><th scope="col">Held by</th>` +
		`<th scope="col">Lease</th></tr></thead>
`)
	for _, f := range s.Found {
		d.put(`<tbody><tr><th scope="row" class="key name"><a class="whole" href="%s">`, address(s.DB, f.Key))
		d.key(display.Shown(f.Key))
		d.put(`</a></th><td class="wide">%s</td><td>`, f.Kind)
		for _, a := range f.Shown {
			d.put("<div>")
			d.away(a)
			d.put("</div>")
		}
		more := int64(len(f.Holders)-len(f.Shown)) + f.Unread
		d.when(more > 0, `<div class="note">and %d more</div>`, more)
		d.put(`</td><td class="fig">%s</td></tr></tbody>`+"\n",
			display.Ago(time.Duration(f.TTL)*time.Millisecond))
	}
	d.put("</table>\n")
}
