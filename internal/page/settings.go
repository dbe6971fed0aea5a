package page

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/inforce"
)

// settingsSheet is what the operator has set, and how it was read last.
func (p *Page) settingsSheet(*http.Request) []section {
	state := p.InForce()
	return []section{
		{name: "reload", title: "Read last", draw: func(d *document) { d.reload(state.Reload) }},
		{name: "settings", title: "Settings in force", draw: func(d *document) { d.settings(state.Settings) }},
		{name: "files", title: "Certificates and passwords", draw: func(d *document) { d.files(time.Now(), state.Files) }},
	}
}

func (p *Page) settingsJSON(w http.ResponseWriter, _ *http.Request) { sendJSON(w, p.InForce()) }

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
			d.textIf("<bdi>%s</bdi>", display.Whole(s.Value))
			d.put(`</td>
<td class="fig">%s</td>
<td>%s`, s.From, either(s.Live, "by a reload", "by a restart"))
			if s.Waiting != nil {
				d.put(`, for which <bdi>%s</bdi> waits`, display.Whole(either(*s.Waiting == "", "(nothing)", *s.Waiting)))
			}
			d.put("</td>\n")
		})
}
