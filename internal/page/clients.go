package page

import (
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/display"
)

// Client is one client of this proxy, with the fields of LOCKPROXY CLIENTS.
type Client struct {
	ID       int64  `json:"id"`
	Addr     string `json:"addr"`
	Name     string `json:"name"`
	User     string `json:"user"`
	DB       int    `json:"db"`
	Proto    int    `json:"resp"`
	Library  string `json:"lib_name"`
	Age      int64  `json:"age_ms"`
	Idle     int64  `json:"idle_ms"`
	Last     string `json:"cmd"`
	Locks    int    `json:"locks"`
	WaitsFor string `json:"waits_for"` // a lock; "": it waits for none
	Waited   int64  `json:"waiting_ms"`
}

// closed is what became of a client that was to be closed.
var closed = map[string]string{"closed": "It was closed.", "gone": "Nothing was closed: that client has gone."}

// clientsSheet are the clients that have a text in their address, name or user, those with most locks first.
func (p *Page) clientsSheet(r *http.Request) []section {
	part, said := r.URL.Query().Get("name"), closed[r.URL.Query().Get("said")]
	some, of := p.Clients(mostRows, part)
	return []section{{name: "clients", title: "Clients", beside: func(d *document) {
		d.put(`<form method="get" action="/clients" role="search">
<label>Address, name or user contains <input id="name" name="name" type="search" value="%s" maxlength="256" autocomplete="off" spellcheck="false"></label>
<button>Show</button>
</form>
`, part)
	}, draw: func(d *document) {
		d.textIf(`<p class="said good" role="status">%s</p>`, said)
		d.put(`<p class="count">%s of %s clients.</p>`, display.Number(int64(len(some))), display.Number(int64(of)))
		d.clients(some)
	}}}
}

func (p *Page) clientsJSON(w http.ResponseWriter, r *http.Request) {
	some, of := p.Clients(mostRows, r.URL.Query().Get("name"))
	sendJSON(w, struct {
		Of      int      `json:"of"`
		Clients []Client `json:"clients"`
	}{of, append([]Client{}, some...)})
}

func (d *document) clients(all []Client) {
	list(d, all, "No client has that.", `<th scope="col">Client</th><th scope="col">User</th><th scope="col">Locks</th>`+
		`<th scope="col">Waits for</th><th scope="col">Idle</th><th scope="col">Last command</th>`, func(c Client) {
		d.put(`<tr><td class="key"><a class="whole" href="/client?id=%d"><code>%s</code> <span class="note id">#%d</span>`,
			c.ID, display.Shown(c.Addr), c.ID)
		d.textIf(` <bdi>%s</bdi>`, display.Shown(c.Name))
		d.put(`</a></td>
<td data-label="User"><bdi>%s</bdi></td>
<td class="fig" data-label="locks">%d</td>
<td data-label="Waits for">`, display.Shown(c.User), c.Locks)
		d.textIf(`<bdi>%s</bdi>`, display.Shown(c.WaitsFor))
		d.put(`</td>
<td data-label="Idle" class="num">%s</td>
<td class="wide">%s</td>
`, display.Ago(time.Duration(c.Idle)*time.Millisecond), display.Shown(c.Last))
	})
}

// aClient shows one client, and asks whether it is to be closed.
func (p *Page) aClient(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("id")
	all, _ := p.Clients(math.MaxInt, "")
	at := slices.IndexFunc(all, func(c Client) bool { return strconv.FormatInt(c.ID, 10) == id })
	if at < 0 {
		http.Redirect(w, r, "/clients?said=gone", http.StatusSeeOther)
		return
	}
	f := p.frame(r.Context(), "")
	var d document
	d.openFrame(f, "#"+id, false)
	d.put("<h2>A client</h2>\n")
	d.clients(all[at : at+1])
	d.put(`<div class="one"><section class="danger" aria-labelledby="kill-title">
<h3 id="kill-title">Close its connection</h3>
<p>As CLIENT KILL does. Locks of the connection are not given back, because the program may still be at work: they end with their leases. `+
		`The log keeps who said this.</p>
<form method="post" action="/client?id=%s">
<input type="hidden" name="addr" value="%s">
<input type="hidden" name="proxy" value="%s">
<label><input type="checkbox" id="sure" name="sure" value="yes" required> I am sure</label>
<button id="kill">Close the client</button>
</form>
</section></div>
`, id, url.PathEscape(all[at].Addr), p.About.Proxy)
	d.closeFrame(f)
	d.sendPage(w, http.StatusOK)
}

// kill closes a client as CLIENT KILL does: the one that was shown, by its number and address at this very process,
// whose successor counts anew.
func (p *Page) kill(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	id, err := strconv.ParseInt(r.URL.Query().Get("id"), 10, 64)
	if err != nil || r.PostFormValue("sure") != "yes" {
		http.Error(w, "nothing was closed: say which client, and that you are sure", http.StatusBadRequest)
		return
	}
	addr, _ := url.PathUnescape(r.PostFormValue("addr")) // "" is nobody's
	word := "gone"
	if r.PostFormValue("proxy") == p.About.Proxy && p.Kill(id, addr, r.RemoteAddr+" ("+p.guard.who(r)+"), at the page") {
		word = "closed"
		p.Log.Warn("a client was closed at the page for operators", "client", addr, "id", id, "from", r.RemoteAddr, "user", p.guard.who(r))
	}
	http.Redirect(w, r, "/clients?said="+word, http.StatusSeeOther)
}
