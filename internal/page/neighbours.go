package page

import (
	"net/http"
	"net/url"
	"time"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/proxies"
)

// proxiesView is the page of this proxy and the others.
func (p *Page) proxiesView(*http.Request) []section {
	all, now := p.states(), time.Now()
	return []section{{name: "proxies", title: "Proxies", draw: func(d *document) { d.proxies(all, now) }}}
}

// proxies draws them.
func (d *document) proxies(all []proxies.State, now time.Time) {
	list(d, all, "", `<th scope="col">Proxy</th><th scope="col">State</th><th scope="col">Holds</th><th scope="col">Waits</th>`+
		`<th scope="col">Version</th><th scope="col">Up since</th>`, func(s proxies.State) {
		d.put("<tr")
		d.when(s.State == "down", ` class="bad"`)
		d.put(">\n" + `<td class="key">`)
		d.proxy(&s)
		d.note(` <span class="note">%s</span>`, display.Shown(s.Host))
		d.put("</td>\n"+`<td class="fig">%s`, either(s.State == "self", "this one", s.State))
		d.when(s.State == "down" || s.State == "gone", " for %s", display.Ago(now.Sub(s.Since)))
		d.put("</td>\n"+`<td class="num" data-label="Holds">%s</td>`+"\n"+`<td class="num" data-label="Waits">%s</td>`+"\n",
			display.Number(int64(s.Holds)), display.Number(int64(s.Waits)))
		d.put(`<td data-label="Version">%s</td>`+"\n"+`<td data-label="Up since">%s UTC`, display.Shown(s.Version), s.Started.UTC().Format(clock))
		d.note(`<div class="note">%s</div>`, display.Whole(s.Trouble))
		d.put("</td>\n")
	})
}

// proxy draws at which proxy something is, with a link to its page if that has answered.
func (d *document) proxy(s *proxies.State) {
	if s.State != "up" {
		d.put(`<code>%s</code>`, display.Shown(s.Addr))
		return
	}
	d.put(`<a href="%s"><code>%s</code></a>`, there(s, "/"), display.Shown(s.Addr))
}

// there is an address at the page of another proxy.
func there(s *proxies.State, path string) string {
	return either(s.Secure, "https://", "http://") + s.Page + path
}

// freeThere draws a link to a lock at the proxy of its holder, which hears of a force there at once. A link from elsewhere
// leads to the first page only: that page picks the lock by its name.
func (d *document) freeThere(s *proxies.State, key string) {
	if s != nil && s.State == "up" {
		query := url.Values{"name": {key[:min(len(key), mostFilter)]}}
		d.put(` <a href="%s">free it there</a>`, there(s, "/?"+query.Encode()))
	}
}

// through says through which proxies locks are shown.
func (v *view) through() string {
	if v.Others == 0 {
		return "this proxy"
	}
	return "this proxy and " + display.Number(int64(v.Others)) + either(v.Others == 1, " other", " others")
}
