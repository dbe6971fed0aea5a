package page

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/lock"
)

// one is the page of one lock.
func (d *document) one(v *detail) {
	at := address(v.DB, v.Name)
	d.openFrame(v.frame, display.Shown(v.Name), false)
	d.put(`<div class="one">
<h2>`)
	d.key(display.Whole(v.Name))
	d.put("</h2>\n")
	d.textIf(`<p class="said good" role="status">%s</p>`, v.Said)
	d.put("\n"+`<p class="note">As it was at %s UTC. <a href="%s">Look again</a></p>`+"\n", v.Asked.UTC().Format(time.TimeOnly), at)
	d.textIf(`<p class="said bad" role="alert">Nothing was freed: %s</p>`, display.Whole(v.Failed))
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
	d.put("</div>\n")
	d.closeFrame(v.frame)
}

// holding draws who holds a lock, as far as proxies or Redis know.
func (d *document) holding(v *detail) {
	d.put("<h3>Held by</h3>\n")
	if len(v.Holders)+len(v.Away) == 0 {
		d.empty("Nobody.")
		return
	}
	d.put(`<ul class="people">` + "\n")
	for _, h := range v.Holders {
		d.put("<li>")
		d.client(h, v.at)
		d.put(` <span class="note">for %s</span> `, ago(h.Held))
		d.lease(h)
		d.put(` <span class="note">%s</span>`, either(h.Watched, "renewed "+display.Number(h.Renewals)+" times", "ends by itself"))
		d.put("</li>\n")
	}
	d.when(v.Trouble != "" && v.Holding > len(v.Holders), `<li class="note">and %d more</li>`+"\n", v.Holding-len(v.Holders))
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

// queueing draws who waits for a lock.
func (d *document) queueing(v *detail) {
	d.put("<h3>Waiting, in their order</h3>\n")
	if len(v.Waiters) == 0 {
		d.empty("Nobody.")
		return
	}
	d.put(`<ol class="people">` + "\n")
	for _, w := range v.Waiters {
		d.put("<li>")
		d.client(w, v.at)
		d.put(` <span class="note">for %s%s</span></li>`+"\n", ago(w.Waited), either(w.Fair, ", in the fair queue", ""))
	}
	d.put("</ol>")
	d.when(v.Waiting > mostOfOne, `<p class="note">and %d more</p>`, v.Waiting-len(v.Waiters))
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
		d.textIf(", %s", display.Whole(n.Trouble))
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
