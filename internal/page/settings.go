package page

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/inforce"
	"github.com/lockproxy/lockproxy/internal/share"
)

// settingsView is what the operator has set, how it was read last, and what users have of their shares.
func (p *Page) settingsView(*http.Request) []section {
	state, users := p.InForce(), p.Users(mostRows)
	return []section{
		{name: "reload", title: "Read last", draw: func(d *document) { d.reload(state.Reload) }},
		{name: "users", title: "Users", draw: func(d *document) { d.users(users) }},
		{name: "settings", title: "Settings in force", draw: func(d *document) { d.settings(state.Settings) }},
		{name: "files", title: "Certificates and passwords", draw: func(d *document) { d.files(time.Now(), state.Files) }},
		{name: "level", title: "Log level until the next reload", beside: (*document).levels},
	}
}

func (p *Page) settingsJSON(w http.ResponseWriter, _ *http.Request) { sendJSON(w, p.InForce()) }

func (p *Page) usersJSON(w http.ResponseWriter, _ *http.Request) {
	sendJSON(w, map[string][]share.Account{"users": append([]share.Account{}, p.Users(mostRows)...)})
}

func (d *document) reload(r inforce.Reload) {
	d.put(`<p class="said %s">%s UTC: %s</p>`+"\n", either(r.Good(), "good", "bad"), r.At.UTC().Format(clock), display.Whole(r.Said()))
}

// settings draws those first that were given.
func (d *document) settings(all []inforce.Setting) {
	slices.SortStableFunc(all, func(a, b inforce.Setting) int {
		return cmp.Compare(either(a.From == "default", 1, 0), either(b.From == "default", 1, 0))
	})
	list(d, all, "", `<th scope="col">Setting</th><th scope="col">Value</th><th scope="col">From</th><th scope="col">A change</th>`,
		func(s inforce.Setting) {
			d.put(`<tr><td class="key">%s</td>
<td>`, s.Name)
			d.note("<bdi>%s</bdi>", display.Whole(s.Value))
			d.put(`</td>
<td class="fig">%s</td>
<td>%s`, s.From, either(s.Live, "by a reload", "by a restart"))
			if s.Waiting != nil {
				d.put(`, for which <bdi>%s</bdi> waits`, display.Whole(either(*s.Waiting == "", "(nothing)", *s.Waiting)))
			}
			d.put("</td>\n")
		})
}

func (d *document) users(all []share.Account) {
	list(d, all, "Nobody is connected.", `<th scope="col">User</th><th scope="col">Clients</th><th scope="col">Commands a second</th>`+
		`<th scope="col">Locks</th><th scope="col">Waits</th>`, func(a share.Account) {
		d.put(`<tr><td class="key">`)
		if a.User == "" {
			d.put(`<span class="note">not logged in, from</span> <code>%s</code></td>`, display.Shown(a.Address))
		} else {
			d.put(`<bdi>%s</bdi></td>`, display.Shown(a.User))
		}
		d.use("Clients", a.Clients)
		d.use("Commands a second", a.Commands)
		d.use("Locks", a.Locks)
		d.use("Waits", a.Waits)
	})
}

// use draws what there is of one kind, of how many, and how often more was refused.
func (d *document) use(what string, u share.Use) {
	d.put(`<td class="num" data-label="%s">%s`, what, either(u.Now < 0, "not counted", display.Number(u.Now)))
	d.when(u.Max > 0, ` <span class="note">of %s</span>`, display.Number(int64(u.Max)))
	d.when(u.Refused > 0, ` <span class="tag">%s refused</span>`, display.Number(u.Refused))
	d.put("</td>\n")
}
