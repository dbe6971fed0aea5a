package page

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/proxies"
)

// eventsAsked is which events a request wants to see.
func eventsAsked(r *http.Request, most int, since time.Time) proxies.Question {
	q, kind := asked(r), r.URL.Query().Get("kind")
	q.Kind, q.Since, q.Events = kind[:min(len(kind), mostFilter)], since, min(most, mostRows)
	q.Locks = 0
	return q
}

// eventsSheet is what has happened at all proxies: see internal/events.
func (p *Page) eventsSheet(r *http.Request) []section {
	which := eventsAsked(r, mostRows, time.Time{})
	v := p.Ask(r.Context(), which)
	return []section{{name: "events", title: "Events", beside: func(d *document) {
		d.put(`<form method="get" action="/events" role="search">
<label>Name contains <input id="name" name="name" type="search" value="%s" maxlength="256" autocomplete="off" spellcheck="false"></label>
<label>Kind <select id="kind" name="kind">
<option value="">any</option>
`, string(which.Name))
		for _, k := range events.Kinds() {
			d.put(`<option value="%s"`, k)
			d.when(k == which.Kind, ` selected`)
			d.put(">%s</option>\n", k)
		}
		d.put(`</select></label>
<button>Show</button>
</form>
`)
	}, draw: func(d *document) { d.events(v) }}}
}

// events draws a table of them.
func (d *document) events(v proxies.Overview) {
	d.silent(v, "what has happened")
	d.when(len(v.Events) < v.Of, `<p class="count">The last %s of %s events: a part of a name shows others.</p>`, display.Number(int64(len(v.Events))), display.Number(int64(v.Of)))
	at := others(v)
	list(d, v.Events, "Nothing of that has happened.", `<th scope="col">When (UTC)</th><th scope="col">What</th><th scope="col">Why</th><th scope="col">Who</th>`,
		func(e events.Event) { d.event(e, at[e.Proxy]) })
}

// event draws one, of this proxy or of another.
func (d *document) event(e events.Event, other string) {
	d.put("<tr")
	d.when(e.Kind == events.Loss, ` class="bad"`)
	d.put(`><td class="fig"><time datetime="%s">%s</time></td>
<td class="key"><span class="tag">%s</span> `, e.Time(), e.At.UTC().Format(clock), e.Kind.String())
	d.when(e.More > 0, `and %s more`, display.Number(e.More))
	if e.Lock {
		d.put(`<a class="whole" href="%s">`, address(e.DB, e.Key))
		d.key(display.Shown(e.Key))
		d.put("</a>")
		d.when(e.DB > 0, ` <span class="tag">db %d</span>`, e.DB)
		d.when(e.Side != "plain", ` <span class="tag">%s</span>`, e.Side)
	}
	d.put("</td>\n<td class=\"why\">%s", display.Shown(e.Reason))
	d.when(e.Waited > 0, ` <span class="note">%s, took %s</span>`, e.Verb, display.Brief(e.Waited))
	d.when(e.Held > 0, ` <span class="note">held %s</span>`, display.Brief(e.Held))
	d.put("</td>\n<td>")
	d.textIf(`<code>%s</code> `, display.Shown(e.Addr))
	d.textIf(`<bdi>%s</bdi> `, display.Shown(e.Name))
	d.textIf(`<span class="note">as <bdi>%s</bdi></span> `, display.Shown(e.User))
	d.textIf(`<bdi class="owner">%s</bdi> `, display.Shown(e.Owner))
	d.textIf(`<span class="note">at <bdi>%s</bdi></span>`, display.Shown(other))
	d.put("</td>\n")
}

// eventsJSON answers with the same: here=1 those of this proxy alone, ?name=, ?kind=, ?since= a time as in RFC 3339, ?limit=.
func (p *Page) eventsJSON(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, err := strconv.Atoi(cmp.Or(q.Get("limit"), "100"))
	var since time.Time
	if q.Has("since") && err == nil {
		since, err = time.Parse(time.RFC3339, q.Get("since"))
	}
	switch kind := q.Get("kind"); {
	case err != nil, limit < 0, kind != "" && !slices.Contains(events.Kinds(), kind):
		http.Error(w, "kind is one of "+strings.Join(events.Kinds(), ", ")+"; since is a time as 2026-01-31T03:12:00Z; limit is a number", http.StatusBadRequest)
		return
	}
	view := p.Ask(r.Context(), eventsAsked(r, limit, since))
	sendJSON(w, struct {
		summary
		Events []events.Event `json:"events"`
	}{p.summary(view), append([]events.Event{}, view.Events...)})
}
