package page

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/inforce"
)

// sheet is a page of the navigation. A row in sheets, and a file with what it shows, make one.
type sheet struct {
	path, title string
	// sections is what a request wants to see. It is called for the page itself, and for the parts that a browser asks for.
	sections func(p *Page, r *http.Request) []section
}

// sheets are the pages of the navigation, in its order. How a table looks on a phone is said in style.css.
func sheets() []sheet {
	return []sheet{
		{"/", "Locks", (*Page).locksSheet},
		{"/clients", "Clients", (*Page).clientsSheet},
		{"/events", "Events", (*Page).eventsSheet},
		{"/proxies", "Proxies", (*Page).proxiesSheet},
		{"/settings", "Settings", (*Page).settingsSheet},
	}
}

// section is one section of a page.
type section struct {
	name, title string          // its name in the document, and its heading
	class       string          // "quiet": only screen readers say the heading
	beside      func(*document) // what is beside the heading, such as a form, and stays as it came; nil: nothing
	draw        func(*document) // what page.js keeps fresh; nil: nothing
}

// mostNodes is how many nodes that are up are shown one by one. Those that are not are shown always.
const mostNodes = 3

// frame is what is around each page.
type frame struct {
	About
	path    string // of the page, if it is one of the navigation
	Trouble []string
	NoLocks string // why locks cannot be had; "": they can
	Nodes   []Node
	Drain   *inforce.Drain
}

func (p *Page) frame(ctx context.Context, path string) *frame {
	f := &frame{About: p.About, path: path, Drain: p.Options.Drain()}
	f.Trouble, f.Nodes = p.health.now(ctx, p)
	if _, err := p.Able(); err != nil {
		f.NoLocks = err.Error()
	}
	return f
}

// serve answers with a page of the navigation.
func (p *Page) serve(s sheet) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f := p.frame(r.Context(), s.path)
		var d document
		d.openFrame(f, s.title, true)
		for _, one := range s.sections(p, r) {
			d.section(one)
		}
		d.closeFrame(f)
		d.sendPage(w, http.StatusOK)
	}
}

// openFrame draws all that is before what a page shows. live: page.js keeps it fresh.
func (d *document) openFrame(f *frame, title string, live bool) {
	d.put(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%s · lockproxy</title>
<link rel="icon" href="/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/style.css">
`, title)
	d.when(live, `<noscript><meta http-equiv="refresh" content="5"></noscript>
<script src="/page.js" defer></script>
`)
	d.put(`</head>
<body data-state="still">
<a class="skip" href="#main">To what the page shows</a>
<header class="top">
<h1><a href="/">lockproxy</a></h1>
<nav aria-label="Pages"><ul>
`)
	for _, s := range sheets() {
		d.put(`<li><a href="%s"`, s.path)
		d.when(s.path == f.path, ` aria-current="page"`)
		d.put(">%s</a></li>\n", s.title)
	}
	d.put(`</ul></nav>
<div data-part="status">`)
	d.status(f)
	d.put("</div>\n")
	d.when(live, `<button type="button" id="pause" hidden aria-pressed="false">Pause</button>`+"\n")
	d.put("</header>\n<main id=\"main\">\n")
}

// closeFrame draws what is after it.
func (d *document) closeFrame(f *frame) {
	d.put(`</main>
<footer>lockproxy %s · %s · id <code>%s</code> · up since %s UTC</footer>
</body>
</html>
`, f.Version, display.Shown(f.Upstream), f.Proxy, f.Started.UTC().Format(clock))
}

// section draws a section of a page.
func (d *document) section(s section) {
	d.put(`<section class="%s" aria-labelledby="%s-title">
<div class="bar"><h2 id="%s-title">%s</h2>
`, s.class, s.name, s.name, s.title)
	if s.beside != nil {
		s.beside(d)
	}
	d.put("</div>\n")
	if s.draw != nil {
		d.put(`<div data-part="%s">`, s.name)
		s.draw(d)
		d.put("</div>\n")
	}
	d.put("</section>\n")
}

// status says whether the proxy is ready, and how the nodes are.
func (d *document) status(f *frame) {
	ready := len(f.Trouble) == 0
	d.put(`
<ul class="nodes" aria-label="Is it ready, and how are the nodes">
<li class="%s"><span class="dot"></span><b>%s</b>`, either(ready, "good", "bad"), either(ready, "ready", "not ready"))
	for _, t := range f.Trouble {
		d.put(` <span class="note">%s</span>`, display.Shown(t))
	}
	d.put("</li>\n")
	d.draining(time.Now(), f.Drain)
	d.textIf(`<li class="bad"><span class="dot"></span><b>no locks</b> <span class="note">%s</span></li>
`, display.Whole(f.NoLocks))
	up := slices.DeleteFunc(slices.Clone(f.Nodes), func(n Node) bool { return n.class() != "good" })
	fold := len(up) > mostNodes
	for _, n := range f.Nodes {
		if !fold || n.class() != "good" {
			d.node(n)
		}
	}
	if fold {
		d.put(`<li class="good"><span class="dot"></span><details id="nodes"><summary id="nodes-up"><b>up</b> %d nodes</summary><ul class="nodes">`, len(up))
		for _, n := range up {
			d.node(n)
		}
		d.put("</ul></details></li>\n")
	}
	d.put("</ul>\n")
}

// node draws how a node is.
func (d *document) node(n Node) {
	d.put(`<li class="%s"><span class="dot"></span><b>%s</b> <code>%s</code>`, n.class(), n.State, display.Shown(n.Name))
	d.textIf(` <span class="note">%s</span>`, n.Role)
	d.when(n.Took > 0, ` <span class="note wide">%.1f ms</span>`, n.Took)
	d.textIf(` <span class="note">%s</span>`, display.Whole(n.Trouble))
	d.textIf(` <span class="note">no locks: %s</span>`, display.Whole(n.NoLocks))
	d.put("</li>\n")
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
