package page

import (
	"fmt"
	"html"
	"net/url"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/hottest"
	"github.com/lockproxy/lockproxy/internal/lock"
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

func (d *document) head() {
	d.put(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>lockproxy</title>
<link rel="icon" href="icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="style.css">
`)
}

func (d *document) foot(a About) {
	d.put(`<footer>lockproxy %s · %s · id <code>%s</code> · up since %s UTC</footer>
</body>
</html>
`, a.Version, display.Shown(a.Upstream), a.Proxy, a.Started.UTC().Format(clock))
}

// kept are the parts of the page that are kept fresh, by their names in the document.
var kept = []struct {
	name string
	draw func(*document, *view)
}{
	{"status", (*document).status}, {"cards", (*document).cards}, {"locks", (*document).locks},
	{"hottest", (*document).hottest}, {"losses", (*document).losses}, {"slow", (*document).slow},
}

// index is the page.
func (d *document) index(v *view) {
	d.head()
	d.put(`<noscript><meta http-equiv="refresh" content="5"></noscript>
<script src="page.js" defer></script>
</head>
<body data-state="still">
<header class="top">
<h1><a href="/">lockproxy</a></h1>
<div data-part="status">`)
	d.status(v)
	d.put(`</div>
<button type="button" id="pause" hidden aria-pressed="false">Pause</button>
</header>
<main>
<section class="cards" aria-label="Contention over the last quarter of an hour" data-part="cards">`)
	d.cards(v)
	d.put(`</section>
<section aria-labelledby="locks-title">
<div class="bar">
<h2 id="locks-title">Locks</h2>
<form method="get" action="/" role="search">
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
</div>
<div data-part="locks">`)
	d.locks(v)
	d.put(`</div>
`)
	d.put(`<div class="bar"><p class="note">Locks of other proxies and of Redisson are not in this list. Redis knows them:</p>
`)
	d.searching("", 0)
	d.put(`</section>
<div class="past">
<section aria-labelledby="hottest-title">
<div class="bar"><h2 id="hottest-title">Waited for most</h2></div>
<div data-part="hottest">`)
	d.hottest(v)
	d.put(`</div>
</section>
<section aria-labelledby="losses-title">
<div class="bar"><h2 id="losses-title">Losses</h2></div>
<div data-part="losses">`)
	d.losses(v)
	d.put(`</div>
</section>
<section aria-labelledby="slow-title">
<div class="bar"><h2 id="slow-title">Slow commands</h2></div>
<div data-part="slow">`)
	d.slow(v)
	d.put(`</div>
</section>
</div>
</main>
`)
	d.foot(v.About)
}

// status says whether the proxy is ready, and how the nodes are.
func (d *document) status(v *view) {
	ready := len(v.Trouble) == 0
	d.put(`
<ul class="nodes" aria-label="Is it ready, and how are the nodes">
<li class="%s"><span class="dot"></span><b>%s</b>`, either(ready, "good", "bad"), either(ready, "ready", "not ready"))
	for _, t := range v.Trouble {
		d.put(` <span class="note">%s</span>`, display.Shown(t))
	}
	d.put("</li>\n")
	d.note(`<li class="bad"><span class="dot"></span><b>no locks</b> <span class="note">%s</span></li>
`, display.Whole(v.NoLocks))
	for _, n := range v.Nodes {
		d.put(`<li class="%s"><span class="dot"></span><b>%s</b> <code>%s</code>`, n.class(), n.State, display.Shown(n.Name))
		d.note(` <span class="note">%s</span>`, n.Role)
		d.when(n.Took > 0, ` <span class="note">%.1f ms</span>`, float64(n.Took)/float64(time.Millisecond))
		d.note(` <span class="note">%s</span>`, display.Whole(n.Trouble))
		d.note(` <span class="note">no locks: %s</span>`, display.Whole(n.NoLocks))
		d.put("</li>\n")
	}
	d.put("</ul>\n")
}

// class is the class of a node in a state.
func class(state string) string {
	switch state {
	case "up":
		return "good"
	case "young":
		return "fair"
	default:
		return "bad"
	}
}

func (n Node) class() string {
	if n.NoLocks != "" && n.State == "up" {
		return "bad"
	}
	return class(n.State)
}

func (d *document) cards(v *view) {
	for _, c := range v.Cards {
		d.put(`
<figure class="card%s">
<figcaption>%s</figcaption>
<strong>%s</strong>
<svg viewBox="0 0 180 40" preserveAspectRatio="none" role="img" aria-label="%s">`, either(c.Bad, " bad", ""), c.Label, c.Now, c.Said)
		d.when(c.Line != "", `<polygon points="%s"/><polyline points="%s"/>`, c.Area, c.Line)
		d.put(`</svg>
<small>%s</small>
</figure>
`, c.Note)
	}
}

// empty says what a part without lines has in their place.
func (d *document) empty(m markup) { d.put(`<p class="none">` + m + "</p>\n") }

func (d *document) locks(v *view) {
	d.put("\n")
	of := display.Number(int64(v.Of))
	switch {
	case len(v.Locks) == 0 && v.Name != "":
		d.empty("No lock has that in its name.")
		return
	case len(v.Locks) == 0:
		d.empty("No lock is held or waited for through this proxy.")
		return
	case v.Shown < v.Of:
		d.put(`<p class="count">%s of %s locks: a part of a name shows others.</p>`, display.Number(int64(v.Shown)), of)
	default:
		d.put(`<p class="count">%s %s, held or waited for through this proxy.</p>`, of, either(v.Of == 1, "lock", "locks"))
	}
	d.put(`
<table class="locks">
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
		d.put(`<td colspan="4" data-label="Held by"><a class="note" href="%s">held elsewhere: Redis knows</a></td>`, address(r.DB, r.Key))
		d.waiters(r)
		d.put("</tr>\n")
	}
	for i, h := range r.Holders {
		d.put("<tr>\n")
		if i == 0 {
			d.name(r)
		}
		d.put("\n" + `<td data-label="Held by">`)
		d.client(h.client)
		d.when(h.Count > 1, ` <span class="tag">%d times</span>`, h.Count)
		d.put(`</td>
<td data-label="For" class="num">%s</td>
<td data-label="Lease">`, display.Ago(h.For))
		d.lease(h)
		d.put(`</td>
<td data-label="Renewed" class="num">`)
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
	d.put(`<th scope="rowgroup" rowspan="%d" class="name"><a id="l%s" href="%s">`, r.Lines(), r.ID, address(r.DB, r.Key))
	d.key(display.Shown(r.Key))
	d.put(`</a>
<span class="tags">`)
	d.when(r.DB > 0, `<span class="tag">db %d</span>`, r.DB)
	d.put(`<span class="tag">%s</span>`, either(r.Sides(), "read/write", "plain"))
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
}

func (d *document) lease(h holder) {
	d.put(`<span class="lease%s%s"><svg aria-hidden="true" viewBox="0 0 100 6" preserveAspectRatio="none">`+
		`<rect class="all" width="100%%" height="6"/><rect class="left" width="%s" height="6"/></svg><span>%s</span></span>`,
		either(h.Low, " low", ""), either(h.Watched, "", " ends"), h.Share, display.Ago(h.Left))
}

func (d *document) waiters(r *row) {
	d.put(`<td rowspan="%d" data-label="Waiting" class="waiting">`, r.Lines())
	if r.Waiting == 0 {
		d.put(`<span class="note">–</span></td>`)
		return
	}
	d.put("<b>%d</b>\n<ol>", r.Waiting)
	for _, w := range r.Waiters {
		d.put("<li>")
		d.client(w.client)
		d.put(` <span class="note num">%s</span></li>`, display.Ago(w.For))
	}
	d.put("</ol>")
	d.when(r.MoreWaiters > 0, `<span class="note">and %d more</span>`, r.MoreWaiters)
	d.put("</td>")
}

// events draws a table of what has been.
func events[T any](d *document, all []T, none, head markup, line func(T)) {
	if len(all) == 0 {
		d.empty(none)
		return
	}
	d.put("\n" + `<table class="events">
<thead><tr>` + head + `</tr></thead>
<tbody>`)
	for _, e := range all {
		line(e)
		d.put("</tr>\n")
	}
	d.put("</tbody></table>\n")
}

func (d *document) hottest(v *view) {
	events(d, v.Hottest, "No lock has been waited for.",
		`<th scope="col">Lock</th><th scope="col" class="num">Waits</th><th scope="col" class="num">Waited</th>`, func(e hottest.Entry) {
			d.put("<tr>\n" + `<td data-label="Lock">`)
			d.key(display.Shown(e.Key))
			d.when(e.DB > 0, ` <span class="tag">db %d</span>`, e.DB)
			d.put("</td>\n"+`<td data-label="Waits" class="num">%s`, display.Number(e.Waits))
			d.when(e.Over > 0, ` <span class="note">or up to %s fewer</span>`, display.Number(e.Over))
			d.put("</td>\n"+`<td data-label="Waited" class="num">%s</td>`+"\n", display.Ago(e.Waited))
		})
}

// happened draws when something was.
func (d *document) happened(at time.Time, ago time.Duration) {
	d.put(`<td data-label="When"><time datetime="%s">%s ago</time></td>`+"\n", at.UTC().Format(time.RFC3339), display.Ago(ago))
}

func (d *document) losses(v *view) {
	events(d, v.Losses, "No lock has been lost.",
		`<th scope="col">When</th><th scope="col">Lock</th><th scope="col">Why</th><th scope="col">Held by</th>`, func(l loss) {
			d.put("<tr")
			d.when(l.Bad(), ` class="bad"`)
			d.put(">\n")
			d.happened(l.At, l.Ago)
			d.put(`<td data-label="Lock">`)
			d.key(display.Shown(l.Key))
			d.put(` <span class="tag">%s</span></td>
<td class="num" data-label="Why">%s</td>
<td data-label="Held by">`, l.Kind.String(), l.Reason)
			d.note(`<code>%s</code> `, display.Shown(l.Addr))
			d.put(`<bdi class="owner">%s</bdi></td>`+"\n", display.Shown(l.Owner))
		})
}

func (d *document) slow(v *view) {
	events(d, v.Slow, "No command has taken long.",
		`<th scope="col">When</th><th scope="col">Command</th><th scope="col">Took</th><th scope="col">Client</th>`, func(s slow) {
			d.put("<tr>\n")
			d.happened(s.At, s.Ago)
			d.put(`<td data-label="Command">`)
			for _, word := range s.Words() {
				d.put(`<bdi>%s</bdi> `, display.Shown(word))
			}
			d.when(s.More() > 0, `<span class="note">and %d with it</span>`, s.More())
			d.put("</td>\n"+`<td data-label="Took" class="num">%s`, display.Brief(s.Took))
			d.note(` <span class="note">Redis %s</span>`, s.Redis())
			d.put("</td>\n"+`<td data-label="Client"><code>%s</code>`, display.Shown(s.Addr))
			d.note(` <bdi>%s</bdi>`, display.Shown(s.Name))
			d.put("</td>\n")
		})
}

// one is the page of one lock.
func (d *document) one(v *detail) {
	at := address(v.DB, v.Key)
	d.head()
	d.put(`
</head>
<body>
<header class="top"><h1><a href="/">lockproxy</a></h1></header>
<main class="one">
<p><a href="/">← all locks</a></p>
<h2>`)
	d.key(display.Whole(v.Key))
	d.put("</h2>\n")
	d.note(`<p class="said good" role="status">%s</p>`, v.Said)
	d.put("\n"+`<p class="note">As it was at %s UTC. <a href="%s">Look again</a></p>`+"\n", v.Asked.UTC().Format(time.TimeOnly), at)
	d.note(`<p class="said bad" role="alert">Nothing was freed: %s</p>`, display.Whole(v.Failed))
	d.put("\n<dl>\n<div><dt>In Redis</dt><dd>")
	switch {
	case v.Trouble != "":
		d.put(`<span class="bad">%s</span>`, display.Whole(v.Trouble))
	case v.Info.Kind == "none":
		d.put("nobody holds it")
	default:
		d.put("%s", v.Info.Kind)
	}
	d.put("</dd></div>\n")
	d.when(v.Info.TTL >= 0, "<div><dt>Lease left</dt><dd>%.1f s</dd></div>\n", float64(v.Info.TTL)/1000)
	d.when(v.DB > 0, "<div><dt>Database</dt><dd>%d</dd></div>\n", v.DB)
	d.when(v.Info.Queue > 0, "<div><dt>In the fair queue</dt><dd>%s</dd></div>\n", display.Number(v.Info.Queue))
	d.when(v.Info.Fenced, "<div><dt>Last fencing token</dt><dd>%d</dd></div>\n", v.Info.Token)
	d.put("</dl>\n")
	d.holding(v)
	d.queueing(v)
	d.votes(v.Info.Nodes)
	d.danger(at, v.From())
	d.put("</main>\n")
	d.foot(v.About)
}

// holding draws who holds a lock, as far as this proxy or Redis knows.
func (d *document) holding(v *detail) {
	d.put("<h3>Held by</h3>\n")
	if len(v.Holders)+len(v.Away) == 0 {
		d.empty("Nobody.")
		return
	}
	d.put(`<ul class="people">` + "\n")
	for _, h := range v.Holders {
		d.put("<li>")
		d.client(h.client)
		d.put(` <span class="note">for %s</span> `, display.Ago(h.For))
		d.lease(h)
		d.put(` <span class="note">%s</span></li>`+"\n", either(h.Watched, "renewed "+display.Number(h.Renewals)+" times", "ends by itself"))
	}
	d.when(v.MoreHolders > 0, `<li class="note">and %d more</li>`+"\n", v.MoreHolders)
	for _, a := range v.Away {
		d.put("<li>")
		d.away(a)
		d.put("</li>\n")
	}
	d.put("</ul>\n")
}

// away draws a holder of which only Redis knows.
func (d *document) away(a away) {
	d.when(a.Kind != lock.Plain, `<span class="tag side">%s</span> `, a.Kind.String())
	d.put(`<bdi class="owner">%s</bdi>`, display.Shown(a.Owner))
	d.when(a.Holds > 1, ` <span class="tag">%d times</span>`, a.Holds)
	d.put(` <span class="note">%s</span>`, display.Shown(a.Where))
}

// queueing draws who waits for a lock on this proxy.
func (d *document) queueing(v *detail) {
	d.put("<h3>Waiting here, in their order</h3>\n")
	if len(v.Waiters) == 0 {
		d.empty("Nobody.")
		return
	}
	d.put(`<ol class="people">` + "\n")
	for _, w := range v.Waiters {
		d.put("<li>")
		d.client(w.client)
		d.put(` <span class="note">for %s%s</span></li>`+"\n", display.Ago(w.For), either(w.Fair, ", in the fair queue", ""))
	}
	d.put("</ol>")
	d.when(v.MoreWaiters > 0, `<p class="note">and %d more</p>`, v.MoreWaiters)
	d.put("\n")
}

// votes draws what the nodes of a quorum have of a lock.
func (d *document) votes(nodes []lock.NodeInfo) {
	if len(nodes) == 0 {
		return
	}
	d.put("<h3>On the nodes</h3>\n" + `<ul class="nodes">`)
	for _, n := range nodes {
		d.put(`<li class="%s"><span class="dot"></span><b>%s</b> <code>%s</code> <span class="note">%s`, class(n.State), n.State, display.Shown(n.Name), n.Has.Kind)
		d.note(", %s", display.Whole(n.Trouble))
		d.put("</span></li>\n")
	}
	d.put("</ul>")
}

// danger draws the form that frees a lock, if there is anybody to take it from.
func (d *document) danger(at string, from []string) {
	if len(from) == 0 {
		return
	}
	d.put(`<section class="danger" aria-labelledby="force-title">
<h3 id="force-title">Free it by force</h3>
<p>%s may still be writing: end the program instead, if you can. Nobody else loses it: if the lock has changed hands meanwhile, nothing is freed. `+
		`The log keeps who said this.</p>
<form method="post" action="%s">
`, either(len(from) == 1, "The holder that is shown above loses it at once, and is told if a proxy can. It",
		"The holders that are shown above lose it at once, and are told if a proxy can. They"), at)
	for _, h := range from {
		d.put(`<input type="hidden" name="holder" value="%s">`+"\n", h)
	}
	d.put(`<label><input type="checkbox" id="sure" name="sure" value="yes" required> I am sure</label>
<button id="force">Free the lock</button>
</form>
</section>
`)
}
