package page

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/events"
)

// mostEvents is how many events one answer in JSON has.
const mostEvents = 10000

// about says whether an event is about a lock with that in its name; "": about anything.
func about(name string) func(*events.Event) bool {
	return func(e *events.Event) bool { return name == "" || e.Lock && strings.Contains(e.Key, name) }
}

// eventsView is what has happened: see internal/events.
func (p *Page) eventsView(r *http.Request) []section {
	part, kind := r.URL.Query().Get("name"), r.URL.Query().Get("kind")
	all := p.Events.Latest(mostRows, kind, about(part))
	return []section{{name: "events", title: "Events", beside: func(d *document) {
		d.put(`<form method="get" action="/events" role="search">
<label>Name contains <input id="name" name="name" type="search" value="%s" maxlength="256" autocomplete="off" spellcheck="false"></label>
<label>Kind <select id="kind" name="kind">
<option value="">any</option>
`, part)
		for _, k := range events.Kinds() {
			d.put(`<option value="%s"`, k)
			d.when(k == kind, ` selected`)
			d.put(">%s</option>\n", k)
		}
		d.put(`</select></label>
<button>Show</button>
</form>
`)
	}, draw: func(d *document) { d.events(all, "Nothing of that has happened.") }}}
}

// events draws a table of them.
func (d *document) events(all []events.Event, none markup) {
	list(d, all, none, `<th scope="col">When (UTC)</th><th scope="col">What</th><th scope="col">Why</th><th scope="col">Who</th>`, d.event)
}

func (d *document) event(e events.Event) {
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
	d.note(`<code>%s</code> `, display.Shown(e.Addr))
	d.note(`<bdi>%s</bdi> `, display.Shown(e.Name))
	d.note(`<span class="note">as <bdi>%s</bdi></span> `, display.Shown(e.User))
	d.note(`<bdi class="owner">%s</bdi>`, display.Shown(e.Owner))
	d.put("</td>\n")
}

// eventsJSON answers with the same: ?name=, ?kind=, ?since= a time as in RFC 3339, ?limit=.
func (p *Page) eventsJSON(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, err := strconv.Atoi(either(q.Has("limit"), q.Get("limit"), "100"))
	since := time.Time{}
	if q.Has("since") && err == nil {
		since, err = time.Parse(time.RFC3339, q.Get("since"))
	}
	kind, named := q.Get("kind"), about(r.URL.Query().Get("name"))
	switch known := kind == "" || slices.Contains(events.Kinds(), kind); {
	case err != nil, limit < 0, !known:
		http.Error(w, "kind is one of "+strings.Join(events.Kinds(), ", ")+"; since is a time as 2026-01-31T03:12:00Z; limit is a number", http.StatusBadRequest)
		return
	}
	answer := struct {
		Proxy  string          `json:"proxy"`
		Events []*events.Event `json:"events"`
	}{p.About.Proxy, []*events.Event{}}
	all := p.Events.Latest(min(limit, mostEvents), kind, func(e *events.Event) bool { return !e.At.Before(since) && named(e) })
	for i := range all {
		answer.Events = append(answer.Events, &all[i])
	}
	sendJSON(w, answer)
}
