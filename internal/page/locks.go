package page

import (
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/proxies"
)

// shownLocks is what the page of locks shows.
type shownLocks struct {
	proxies.Overview
	asked proxies.Question
	at    map[string]string // the other proxies, by their ids
}

// others are the proxies but the first, which is this one.
func others(v proxies.Overview) map[string]string {
	at := map[string]string{}
	for i := 1; i < len(v.Proxies); i++ {
		at[v.Proxies[i].ID] = v.Proxies[i].Title()
	}
	return at
}

// locksSheet is the page of locks.
func (p *Page) locksSheet(r *http.Request) []section {
	v := &shownLocks{asked: asked(r)}
	v.Overview = p.Ask(r.Context(), v.asked)
	v.at = others(v.Overview)
	return []section{
		{name: "cards", title: "This proxy since its start", class: "quiet", draw: func(d *document) {
			d.cards(p.Stats(), len(p.Events.Latest(1, "loss", func(*events.Event) bool { return true })) > 0)
		}},
		{name: "locks", title: "Locks", beside: func(d *document) { d.picking(v) }, draw: func(d *document) { d.locks(v) }},
		{name: "redis", title: "Locks in Redis, also of Redisson", beside: func(d *document) { d.searching("", 0) }},
	}
}

// through says through which proxies locks are shown, and how old that is.
func (v *shownLocks) through() string {
	up := int64(0)
	for i := range v.Proxies {
		if v.Proxies[i].State == "up" {
			up++
		}
	}
	beside := ""
	if up > 0 {
		beside = " and " + display.Number(up) + either(up == 1, " other", " others")
	}
	return "this proxy" + beside + ", " + display.Ago(time.Since(v.At)) + " ago"
}

// sides says whether it is a read/write lock.
func sides(l *proxies.Lock) bool {
	return slices.ContainsFunc(slices.Concat(l.Holders, l.Waiters), func(e lock.Entry) bool { return side(&e) != "" })
}

// side is that of a read/write lock; "": it has none.
func side(e *lock.Entry) string { return either(e.Kind == lock.Plain, "", e.Kind.String()) }

// lines is how many lines a lock takes.
func lines(l *proxies.Lock) int {
	return max(1, min(len(l.Holders), mostOf)+either(l.Holding > min(len(l.Holders), mostOf), 1, 0))
}

// mark is what a lock is called in the document.
func mark(l *proxies.Lock) string {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(strconv.Itoa(l.DB) + ":" + l.Name)) // it never fails
	return "l" + strconv.FormatUint(sum.Sum64(), 36)
}

// ago is a time in ms.
func ago(ms int64) string { return display.Ago(time.Duration(ms) * time.Millisecond) }

// proxiesSheet is the page of this proxy and the others.
func (p *Page) proxiesSheet(r *http.Request) []section {
	v, now := p.Ask(r.Context(), proxies.Question{}), time.Now()
	return []section{{name: "proxies", title: "Proxies", draw: func(d *document) { d.proxies(v, now) }}}
}

// proxies draws them.
func (d *document) proxies(v proxies.Overview, now time.Time) {
	d.put(`<p class="count">As it was %s ago.</p>`, display.Ago(now.Sub(v.At)))
	list(d, v.Proxies, "", `<th scope="col">Proxy</th><th scope="col">State</th><th scope="col">Holds</th><th scope="col">Waits</th>`+
		`<th scope="col">Version</th><th scope="col">Up since</th>`, func(s proxies.State) {
		d.put("<tr")
		d.when(s.State == "down" || s.State == "self" && s.Trouble != "", ` class="bad"`)
		d.put(">\n"+`<td class="key"><bdi>%s</bdi></td>`+"\n"+`<td class="fig">%s`, display.Shown(s.Title()), either(s.State == "self", "this one", s.State))
		d.when(s.State == "down" || s.State == "gone", " for %s", display.Ago(now.Sub(s.Since)))
		d.put("</td>\n"+`<td class="num" data-label="Holds">%s</td>`+"\n"+`<td class="num" data-label="Waits">%s</td>`+"\n",
			display.Number(int64(s.Holds)), display.Number(int64(s.Waits)))
		d.put(`<td data-label="Version">%s</td>`+"\n"+`<td data-label="Up since">`, display.Shown(s.Version))
		d.when(s.ID != "", "%s UTC", s.Started.UTC().Format(clock))
		d.textIf(`<div class="note">%s</div>`, display.Whole(s.Trouble))
		d.put("</td>\n")
	})
}
