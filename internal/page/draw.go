package page

import (
	"fmt"
	"html"
	"net/url"
	"strings"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/hottest"
)

// The page is drawn by functions rather than by html/template, because a program with that package in it keeps every
// exported method of every type that it knows: 18 MB more, most of them rueidis' builders of commands.
// docs/DEPENDENCIES.md has the figures.

// markup is HTML that is written as it is. Only literals become markup: whatever is a string already does not compile
// as one.
type markup string

// document is HTML that is being drawn.
type document struct{ strings.Builder }

// put writes markup with values, as fmt.Printf does, of which all but numbers are text and escaped. Values stand
// between tags, or between quotation marks.
func (d *document) put(m markup, values ...any) {
	for i, v := range values {
		switch v.(type) {
		case int, int64, float64:
		default:
			values[i] = html.EscapeString(strings.ReplaceAll(fmt.Sprint(v), "\x00", "\uFFFD"))
		}
	}
	fmt.Fprintf(d, string(m), values...)
}

// when writes markup if something is so.
func (d *document) when(is bool, m markup, values ...any) {
	if is {
		d.put(m, values...)
	}
}

// note writes a text that is told beside others, if there is one.
func (d *document) note(m markup, text string) { d.when(text != "", m, text) }

// either is one of two, for attributes and words.
func either[T any](is bool, a, b T) T {
	if is {
		return a
	}
	return b
}

// address is the address of a lock's page.
func address(db int, key string) string {
	return fmt.Sprintf("/lock?db=%d&name=%s", db, url.QueryEscape(key))
}

const clock = "2006-01-02 15:04:05"

// picking draws the form that picks and sorts the locks of this proxy.
func (d *document) picking(v *view) {
	d.put(`<form method="get" action="/" role="search">
<label>Name contains <input id="name" name="name" type="search" value="%s" maxlength="256" autocomplete="off" spellcheck="false"></label>
<label>First <select id="sort" name="sort">
<option value="">waited for longest</option>
`, v.Name)
	for _, o := range []struct{ value, text string }{{"held", "held longest"}, {"name", "by name"}} {
		d.put(`<option value="%s"`, o.value)
		d.when(v.Sort == o.value, ` selected`)
		d.put(">%s</option>\n", o.text)
	}
	d.put(`</select></label>
<button>Show</button>
</form>
`)
}

func (d *document) cards(v *view) {
	for _, c := range v.Cards {
		d.put(`
<figure class="card%s">
<figcaption>`, either(c.Bad, " bad", ""))
		if c.Link != "" {
			d.put(`<a id="card-%s" href="%s">%s</a>`, c.Label, c.Link, c.Label)
		} else {
			d.put("%s", c.Label)
		}
		d.put(`</figcaption>
<strong>%s</strong>
<svg viewBox="0 0 180 40" preserveAspectRatio="none" role="img" aria-label="%s">`, c.Now, c.Said)
		d.when(c.Line != "", `<polygon points="%s"/><polyline points="%s"/>`, c.Area, c.Line)
		d.put(`</svg>
<small>%s`, c.Note)
		d.when(c.Peak, ` <span class="wide">in the last hour</span>`)
		d.put("</small>\n</figure>\n")
	}
}

// empty says what a part without lines has in their place.
func (d *document) empty(m markup) { d.put(`<p class="none">` + m + "</p>\n") }

func (d *document) locks(v *view) {
	d.put("\n")
	d.when(v.Silent > 0, `<p class="count bad"><a href="/proxies">%s</a> not tell what is held and waited for there.</p>`+"\n",
		either(v.Silent == 1, "A proxy does", display.Number(int64(v.Silent))+" proxies do"))
	of := display.Number(int64(v.Of))
	switch {
	case len(v.Locks) == 0 && v.Name != "":
		d.empty("No lock has that in its name.")
		return
	case len(v.Locks) == 0:
		d.put(`<p class="none">No lock is held or waited for through %s.</p>`+"\n", v.through())
		return
	case v.Shown < v.Of:
		d.put(`<p class="count">%s of %s locks: a part of a name shows others.</p>`, display.Number(int64(v.Shown)), of)
	default:
		d.put(`<p class="count">%s %s, held or waited for through %s.</p>`, of, either(v.Of == 1, "lock", "locks"), v.through())
	}
	d.put(`
<table class="list locks">
<thead><tr><th scope="col">Lock</th><th scope="col">Held by</th><th scope="col">For</th><th scope="col">Lease</th>` +
		`<th scope="col" class="num">Renewed</th><th scope="col">Waiting</th></tr></thead>
`)
	for i := range v.Locks {
		d.put("<tbody>\n")
		d.lock(&v.Locks[i])
		d.put("</tbody>\n")
	}
	d.put("</table>\n")
}

// lock draws the lines of one lock: one for each holder, its name and those who wait beside all of them.
func (d *document) lock(r *row) {
	if len(r.Holders) == 0 {
		d.put("<tr>")
		d.name(r)
		d.put(`<td colspan="4">held elsewhere: Redis knows</td>`)
		d.waiters(r)
		d.put("</tr>\n")
	}
	for i, h := range r.Holders {
		d.put("<tr>\n")
		if i == 0 {
			d.name(r)
		}
		d.put("\n<td>")
		d.client(h.client)
		d.when(h.Count > 1, ` <span class="tag">%d times</span>`, h.Count)
		d.when(len(r.held) > 1, ` <span class="narrow">and %d more</span>`, len(r.held)-1)
		d.put(`</td>
<td class="fig">%s</td>
<td class="wide">`, display.Ago(h.For))
		d.lease(h)
		d.put(`</td>
<td class="wide num">`)
		if h.Watched {
			d.put("%s", display.Number(h.Renewals))
		} else {
			d.put(`<span class="note">ends by itself</span>`)
		}
		d.put("</td>\n")
		if i == 0 {
			d.waiters(r)
		}
		d.put("\n</tr>\n")
	}
	d.when(r.MoreHolders > 0, `<tr><td colspan="4" class="note">and %d more</td></tr>
`, r.MoreHolders)
}

// key is a lock's name.
func (d *document) key(shown string) {
	if shown == "" {
		d.put(`<span class="note">empty name</span>`)
		return
	}
	d.put(`<bdi>%s</bdi>`, shown)
}

func (d *document) name(r *row) {
	d.put(`<th scope="rowgroup" rowspan="%d" class="key name"><a class="whole" id="l%s" href="%s">`, r.Lines(), r.ID, address(r.DB, r.Key))
	d.key(display.Shown(r.Key))
	d.put(`</a>
<span class="tags">`)
	d.when(r.DB > 0, `<span class="tag">db %d</span>`, r.DB)
	d.when(r.Sides(), `<span class="tag">read/write</span>`)
	d.when(r.Fair, `<span class="tag">fair</span>`)
	d.put(`</span></th>`)
}

func (d *document) client(c client) {
	d.note(`<span class="tag side">%s</span> `, c.Side())
	if c.Addr != "" {
		d.put(`<code>%s</code>`, display.Shown(c.Addr))
		d.note(` <bdi>%s</bdi>`, display.Shown(c.Name))
		d.when(c.Number != 0, ` <span class="note id">#%d</span>`, c.Number)
	} else {
		d.put(`<span class="note">its client has gone</span>`)
	}
	d.when(c.Named, ` <span class="note">as</span> <bdi class="owner">%s</bdi>`, display.Shown(c.Owner))
	if c.Proxy != nil {
		d.put(` <span class="note">at</span> `)
		d.proxy(c.Proxy)
	}
}

func (d *document) lease(h holder) {
	d.put(`<span class="lease%s%s"><svg aria-hidden="true" viewBox="0 0 100 6" preserveAspectRatio="none">`+
		`<rect width="%s" height="6"/></svg><span>%s</span></span>`,
		either(h.Low, " low", ""), either(h.Watched, "", " ends"), h.Share, display.Ago(h.Left))
}

func (d *document) waiters(r *row) {
	d.put(`<td rowspan="%d" data-label="waiting" class="%s">`, r.Lines(), either(r.Waiting == 0, "waiting wide", "waiting"))
	if r.Waiting == 0 {
		d.put(`<span class="note">–</span></td>`)
		return
	}
	d.put("<b>%d</b>\n"+`<ol class="wide">`, r.Waiting)
	for _, w := range r.Waiters {
		d.put("<li>")
		d.client(w.client)
		d.put(` <span class="note num">%s</span></li>`, display.Ago(w.For))
	}
	d.put("</ol>")
	d.when(r.MoreWaiters > 0, `<span class="note wide">and %d more</span>`, r.MoreWaiters)
	d.put("</td>")
}

// list draws a table of one line an entry. style.css says which classes its cells have.
func list[T any](d *document, all []T, none, head markup, line func(T)) {
	if len(all) == 0 {
		d.empty(none)
		return
	}
	d.put("\n" + `<table class="list">
<thead><tr>` + head + `</tr></thead>
<tbody>`)
	for _, e := range all {
		line(e)
		d.put("</tr>\n")
	}
	d.put("</tbody></table>\n")
}

func (d *document) hottest(v *view) {
	list(d, v.Hottest, "No lock has been waited for.",
		`<th scope="col">Lock</th><th scope="col">Waits</th><th scope="col">Waited</th>`, func(e hottest.Entry) {
			d.put("<tr>\n" + `<td class="key">`)
			d.key(display.Shown(e.Key))
			d.when(e.DB > 0, ` <span class="tag">db %d</span>`, e.DB)
			d.put("</td>\n"+`<td class="num" data-label="Waits">%s`, display.Number(e.Waits))
			d.when(e.Over > 0, ` <span class="note">or up to %s fewer</span>`, display.Number(e.Over))
			d.put("</td>\n"+`<td class="fig">%s</td>`+"\n", display.Ago(e.Waited))
		})
}
