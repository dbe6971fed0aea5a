package page

import (
	"fmt"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/proxies"
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

// textIf writes a text that is told beside others, if there is one.
func (d *document) textIf(m markup, text string) { d.when(text != "", m, text) }

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
func (d *document) picking(v *shownLocks) {
	d.put(`<form method="get" action="/" role="search">
<label>Name contains <input id="name" name="name" type="search" value="%s" maxlength="256" autocomplete="off" spellcheck="false"></label>
<label>First <select id="sort" name="sort">
<option value="">waited for longest</option>
`, string(v.asked.Name))
	for _, o := range []struct{ value, text string }{{"held", "held longest"}, {"name", "by name"}} {
		d.put(`<option value="%s"`, o.value)
		d.when(v.asked.Sort == o.value, ` selected`)
		d.put(">%s</option>\n", o.text)
	}
	d.put(`</select></label>
<button>Show</button>
</form>
`)
}

// cards draws the figures of this proxy since its start; badly: a loss is remembered.
func (d *document) cards(s lock.Stats, badly bool) {
	for _, c := range []struct {
		label  string
		figure int64
	}{{"waiting", s.Waiting}, {"held", s.Held}, {"granted", s.Granted}, {"refused", s.Refused}} {
		d.put("\n"+`<figure class="card"><figcaption>%s</figcaption><strong>%s</strong></figure>`, c.label, display.Number(c.figure))
	}
	d.put("\n"+`<figure class="card%s"><figcaption><a id="card-lost" href="/events?kind=loss">lost</a></figcaption><strong>%s</strong></figure>`+"\n",
		either(badly, " bad", ""), display.Number(s.Lost))
}

// empty says what a part without lines has in their place.
func (d *document) empty(m markup) { d.put(`<p class="none">` + m + "</p>\n") }

// silent says which proxies have not answered what there is.
func (d *document) silent(v proxies.Overview, what markup) {
	if silent := v.Silent(); len(silent) > 0 {
		d.put(`<p class="count bad"><a href="/proxies">No answer</a> says `+what+" at %s.</p>\n", display.Whole(strings.Join(silent, ", ")))
	}
}

func (d *document) locks(v *shownLocks) {
	d.put("\n")
	d.silent(v.Overview, "what is held and waited for")
	of, shown := display.Number(int64(v.Of)), len(v.Locks)
	switch {
	case shown == 0 && len(v.asked.Name) > 0:
		d.empty("No lock has that in its name.")
		return
	case shown == 0:
		d.put(`<p class="none">No lock is held or waited for through %s.</p>`+"\n", v.through())
		return
	case shown < v.Of:
		d.put(`<p class="count">%s of %s locks, held or waited for through %s: a part of a name shows others.</p>`, display.Number(int64(shown)), of, v.through())
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
		d.lock(&v.Locks[i], v.at)
		d.put("</tbody>\n")
	}
	d.put("</table>\n")
}

// lock draws the lines of one lock: one for each holder, its name and those who wait beside all of them. at are the other
// proxies.
func (d *document) lock(l *proxies.Lock, at map[string]string) {
	if len(l.Holders) == 0 {
		d.put("<tr>")
		d.name(l)
		d.put(`<td colspan="4">held elsewhere: Redis knows</td>`)
		d.waiters(l, at)
		d.put("</tr>\n")
	}
	shown := l.Holders[:min(len(l.Holders), mostOf)]
	for i, h := range shown {
		d.put("<tr>\n")
		if i == 0 {
			d.name(l)
		}
		d.put("\n<td>")
		d.client(h, at)
		d.when(h.Holds > 1, ` <span class="tag">%d times</span>`, h.Holds)
		d.when(l.Holding > 1, ` <span class="narrow">and %d more</span>`, l.Holding-1)
		d.put(`</td>
<td class="fig">%s</td>
<td class="wide">`, ago(h.Held))
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
			d.waiters(l, at)
		}
		d.put("\n</tr>\n")
	}
	d.when(len(shown) > 0 && l.Holding > len(shown), `<tr><td colspan="4" class="note">and %d more</td></tr>
`, l.Holding-len(shown))
}

// key is a lock's name.
func (d *document) key(shown string) {
	if shown == "" {
		d.put(`<span class="note">empty name</span>`)
		return
	}
	d.put(`<bdi>%s</bdi>`, shown)
}

func (d *document) name(l *proxies.Lock) {
	d.put(`<th scope="rowgroup" rowspan="%d" class="key name"><a class="whole" id="%s" href="%s">`, lines(l), mark(l), address(l.DB, l.Name))
	d.key(display.Shown(l.Name))
	d.put(`</a>
<span class="tags">`)
	d.when(l.DB > 0, `<span class="tag">db %d</span>`, l.DB)
	d.when(sides(l), `<span class="tag">read/write</span>`)
	d.when(slices.ContainsFunc(l.Waiters, func(e lock.Entry) bool { return e.Fair }), `<span class="tag">fair</span>`)
	d.put(`</span></th>`)
}

// client draws who holds or waits, and at which other proxy.
func (d *document) client(e lock.Entry, at map[string]string) {
	d.textIf(`<span class="tag side">%s</span> `, side(&e))
	if e.Addr != "" {
		d.put(`<code>%s</code>`, display.Shown(e.Addr))
		d.textIf(` <bdi>%s</bdi>`, display.Shown(e.Name))
		d.when(e.ClientID != 0, ` <span class="note id">#%d</span>`, e.ClientID)
	} else {
		d.put(`<span class="note">its client has gone</span>`)
	}
	d.when(lockstore.ValidOwner(e.Owner), ` <span class="note">as</span> <bdi class="owner">%s</bdi>`, display.Shown(e.Owner))
	d.textIf(` <span class="note">at <bdi>%s</bdi></span>`, display.Shown(at[e.Proxy]))
}

// lease draws what is left of it.
func (d *document) lease(h lock.Entry) {
	share := min(1, float64(h.Left)/float64(max(h.Lease, 1)))
	d.put(`<span class="lease%s%s"><svg aria-hidden="true" viewBox="0 0 100 6" preserveAspectRatio="none">`+
		`<rect width="%s" height="6"/></svg><span>%s</span></span>`,
		either(share < 0.2, " low", ""), either(h.Watched, "", " ends"), strconv.FormatFloat(100*share, 'f', 1, 64)+"%", ago(h.Left))
}

func (d *document) waiters(l *proxies.Lock, at map[string]string) {
	d.put(`<td rowspan="%d" data-label="waiting" class="%s">`, lines(l), either(l.Waiting == 0, "waiting wide", "waiting"))
	if l.Waiting == 0 {
		d.put(`<span class="note">–</span></td>`)
		return
	}
	d.put("<b>%d</b>\n"+`<ol class="wide">`, l.Waiting)
	shown := l.Waiters[:min(len(l.Waiters), mostOf)]
	for _, w := range shown {
		d.put("<li>")
		d.client(w, at)
		d.put(` <span class="note num">%s</span></li>`, ago(w.Waited))
	}
	d.put("</ol>")
	d.when(l.Waiting > len(shown), `<span class="note wide">and %d more</span>`, l.Waiting-len(shown))
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
