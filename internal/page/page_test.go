package page

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/display"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/inforce"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/proxies"
)

// engine is a lock engine that has what a test gave it.
type engine struct {
	mu     sync.Mutex
	list   []lock.Entry
	lost   []events.Event
	events *events.Log
	info   lock.Info
	stats  lock.Stats
	forced []string // who said it, and of which lock
	kept   bool     // a force frees nothing
	freed  []string // of which other proxies were told
	others []proxies.State
	away   []events.Event // of the others
	fails  error
	unable error

	clients []Client
	state   inforce.State
	killed  []string
}

func (e *engine) Each(fits func(int, string) bool, f func(lock.Entry)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, one := range e.list {
		if fits(one.DB, one.Key) {
			f(one)
		}
	}
}

func (e *engine) Forced(int, string) {}

// alone is an exchange of this proxy with itself, which remembers nothing.
func (e *engine) alone() *proxies.Exchange {
	return proxies.New(proxies.ExchangeOptions{Self: proxies.Proxy{ID: "the-id-of-a-proxy", Host: "here"}, Locks: e, Events: e.events})
}

func (e *engine) Ask(ctx context.Context, q proxies.Question) proxies.Overview {
	v := e.alone().Ask(ctx, q)
	if q.Here {
		return v
	}
	v.Proxies, v.Events = append(v.Proxies, e.others...), append(v.Events, e.away...)
	return v
}

func (e *engine) Of(_ context.Context, owner string) (of proxies.State, none bool) {
	id, _, _ := lockstore.ConnectionIn(owner)
	for _, s := range e.others {
		if s.ID == id {
			return s, false
		}
	}
	return of, owner == thread
}

func (e *engine) Freed(_ context.Context, db int, key string) {
	e.freed = append(e.freed, fmt.Sprint(db, " ", key))
}

func (e *engine) Info(context.Context, int, string) (lock.Info, error) { return e.info, e.fails }
func (e *engine) Stats() lock.Stats                                    { return e.stats }
func (e *engine) Able() ([]lock.Ability, error)                        { return nil, e.unable }

func (e *engine) force(_ context.Context, by lock.ClientInfo, r lock.UnlockRequest) (bool, error) {
	e.forced = append(e.forced, fmt.Sprintf("%s/%s/%s: %d %s %v %v", by.Addr, by.User(), by.Name(), r.DB, r.Key, r.Force, r.From))
	return !e.kept, e.fails
}

func (e *engine) options() Options {
	e.events = events.New(nil, "")
	for _, l := range e.lost {
		e.events.Add(l)
	}
	return Options{
		Events: e.events, Locks: e, Proxies: e, Force: e.force, Log: slog.New(slog.DiscardHandler),
		People: People{
			InForce: func() inforce.State { return e.state },
			Drain:   func() *inforce.Drain { return e.state.Drain },
			Clients: func(int, string) ([]Client, int) { return e.clients, len(e.clients) + 1000 },
			Kill: func(id int64, addr, _ string) bool {
				e.killed = append(e.killed, fmt.Sprint(id, " ", addr))
				return slices.ContainsFunc(e.clients, func(c Client) bool { return c.ID == id && c.Addr == addr })
			},
		},
		Trouble: func(context.Context) []string { return nil },
		Nodes: func(context.Context) []Node {
			return []Node{{Name: "10.0.0.1:6379", Role: "master", State: "up", Took: 1}, {Name: "10.0.0.2:6379", Role: "replica", State: "down", Trouble: "dial: <refused>"}}
		},
		About: About{Version: "1.2.3", Proxy: "the-id", Started: time.Now()},
	}
}

// lost is a loss.
func lost(key, owner, reason string) events.Event {
	return events.Event{At: time.Now(), Kind: events.Loss, Lock: true, Key: key, Side: "plain", Owner: owner, Reason: reason}
}

func held(key, addr string) lock.Entry {
	e := lock.Entry{Key: key, Left: 20_000}
	e.Holder = lock.Holder{Owned: lockstore.Owned{Owner: "u:1", Holds: 1}, Local: true, ClientID: 7, Addr: addr, Name: "job", Held: 90_000, Watched: true, Renewals: 9, Lease: 30_000}
	return e
}

func waits(key, addr string, since time.Duration) lock.Entry {
	e := lock.Entry{Key: key, Place: 1, Waited: since.Milliseconds()}
	e.Holder = lock.Holder{Owned: lockstore.Owned{Owner: "u:2"}, Local: true, ClientID: 8, Addr: addr}
	return e
}

// ask sends a request to a page; header is name, value, ….
func ask(t testing.TB, p *Page, method, target, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	p.Handler().ServeHTTP(w, r)
	return w
}

const home = "http://127.0.0.1:9181"

func has(t *testing.T, text string, all ...string) {
	t.Helper()
	for _, part := range all {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

func TestPageShowsLocks(t *testing.T) {
	e := &engine{list: []lock.Entry{
		held("a", "10.1.1.1:1"), held("b", "10.1.1.1:1"), waits("b", "10.1.1.2:2", 3*time.Second), waits("b", "10.1.1.3:3", 70*time.Second), waits("c", "10.1.1.4:4", time.Second),
	}}
	e.stats = lock.Stats{Held: 2, Waiting: 3, Lost: 1}
	e.lost = []events.Event{lost("gone", "worker-7", "unrenewed")}
	e.lost[0].At = time.Now().Add(-time.Minute)
	p := New(e.options())
	w := ask(t, p, "GET", home+"/", "")
	text := w.Body.String()
	has(t, text, "10.1.1.1:1", "1 min 30 s", `width="66.`, "held elsewhere", `href="/events?kind=loss"`, "10.0.0.2:6379", "dial: &lt;refused&gt;", "the-id", "3 locks")
	has(t, ask(t, p, "GET", home+"/events?kind=loss", "").Body.String(), "worker-7", "unrenewed", e.lost[0].At.UTC().Format(clock))
	if strings.Contains(text, "the-value") {
		t.Error("what a client wrote is shown")
	}
	if b, a, second := strings.Index(text, `name=b"`), strings.Index(text, `name=a"`), strings.Index(text, "10.1.1.3:3"); b < 0 || b > a || second < strings.Index(text, "10.1.1.2:2") {
		t.Error("the one that is longest waited for is not first, or its waiters are not in their order")
	}
	text = ask(t, p, "GET", home+"/?name=c&sort=name", "").Body.String()
	if has(t, text, "1 lock,", `value="c"`); strings.Contains(text, "name=a\"") {
		t.Error("the filter lets others through")
	}
	has(t, ask(t, p, "GET", home+"/?name=nothing", "").Body.String(), "No lock has that in its name")
	for name, value := range headers {
		if w.Header().Get(name) != value {
			t.Errorf("%s: %q", name, w.Header().Get(name))
		}
	}
	for _, asset := range []string{"style.css", "page.js", "icon.svg"} {
		if w := ask(t, p, "GET", home+"/"+asset, ""); w.Code != 200 || w.Body.Len() < 100 {
			t.Errorf("%s: %d", asset, w.Code)
		}
	}
	if w := ask(t, p, "GET", home+"/other", ""); w.Code != 404 {
		t.Errorf("another path: %d", w.Code)
	}
}

// What clients choose is text, whatever is in it, and takes little room.
func TestHostileNames(t *testing.T) {
	hostile := []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `javascript:alert(1)`, "</table>{{.}}<!--",
		"a\x00b\r\nevent: locks\ndata: x\n\n", "\xff\xfe\x80", "\u202egnp.exe", "a\u200b\u2066b", strings.Repeat("ä", 2000),
	}
	e := &engine{}
	for _, name := range hostile {
		one := held(name, name)
		one.Name, one.Owner = name, name
		e.list = append(e.list, one, waits(name, name, time.Second))
		l := lost(name, name, name)
		l.Client = events.Client{Addr: name, User: name, Name: name}
		e.lost = append(e.lost, l)
		e.clients = append(e.clients, Client{ID: int64(len(e.clients)), Addr: name, Name: name, User: name, Library: name, Last: name, WaitsFor: name})
		e.state.Settings = append(e.state.Settings, inforce.Setting{Name: "listen", Value: name, Waiting: &name})
		e.state.Reload.Faults = append(e.state.Reload.Faults, name)
		e.state.Files = append(e.state.Files, inforce.File{Name: name, Holds: "passwords", Trouble: name})
		e.state.Drain = &inforce.Drain{Left: name}
	}
	o := e.options()
	o.Trouble = func(context.Context) []string { return hostile }
	e.info = lock.Info{Holders: []lock.Holder{{Owned: lockstore.Owned{Owner: hostile[0]}}}}
	p := New(o)
	pages := []string{ask(t, p, "GET", home+"/?name="+url.QueryEscape(`"><script>`), "").Body.String(), ask(t, p, "GET", home+"/", "").Body.String()}
	for _, name := range hostile {
		w := ask(t, p, "GET", home+"/lock?"+url.Values{"db": {"0"}, "name": {name}}.Encode(), "")
		if w.Code != 200 {
			t.Errorf("%q: %d", name, w.Code)
		}
		pages = append(pages, w.Body.String())
	}
	for i := range hostile {
		pages = append(pages, ask(t, p, "GET", home+fmt.Sprint("/client?id=", i), "").Body.String())
	}
	for _, s := range sheets() {
		pages = append(pages, ask(t, p, "GET", home+s.path+"?said=%3Cscript%3Ealert&name="+url.QueryEscape(hostile[1]), "").Body.String(),
			ask(t, p, "GET", home+"/parts?page="+s.path, "").Body.String())
	}
	for _, text := range pages {
		for _, bad := range []string{"<script>alert", "<img", "' onmouseover", `href="javascript:`, "</table>{{", "\x00", "\xff", "\u202e", "\u200b", "\u2066", strings.Repeat("ä", 2000) + " "} {
			if strings.Contains(text, bad) {
				t.Errorf("%q is in it", bad)
			}
		}
	}
	has(t, pages[1], "&lt;script&gt;", `\xff\xfe\x80`, `\u202egnp.exe`, `a\x00b\r\n`, "…", "(4,000 bytes)", "name=%FF%FE%80")
	if huge := display.Shown(strings.Repeat("x", 16<<20)); huge != strings.Repeat("x", 72)+"…"+strings.Repeat("x", 20)+" (16,777,216 bytes)" {
		t.Error(huge)
	}
}

func TestForceIsConfirmed(t *testing.T) {
	e := &engine{info: lock.Info{Info: lockstore.Info{Kind: "plain", TTL: 1500}, Holders: []lock.Holder{{Owned: lockstore.Owned{Owner: "u:1"}}}}}
	p := New(e.options())
	at := home + "/lock?db=3&name=a%2F%ff%20b"
	has(t, ask(t, p, "GET", at, "").Body.String(), `action="/lock?db=3&amp;name=a%2F%FF+b"`, "required", "1.5 s")
	for target, body := range map[string]string{at: "", home + "/lock?db=3": "sure=yes", home + "/lock?db=x&name=a": "sure=yes", at + strings.Repeat("a", 5000): "sure=yes"} {
		if w := ask(t, p, "POST", target, body); w.Code != http.StatusBadRequest {
			t.Errorf("%.60s, %q: %d", target, body, w.Code)
		}
	}
	if w := ask(t, p, "GET", at+"&sure=yes", ""); w.Code != 200 || len(e.forced) != 0 {
		t.Fatalf("%d, forced %q", w.Code, e.forced)
	}
	w := ask(t, p, "POST", at, "sure=yes")
	if w.Code != http.StatusSeeOther || len(e.forced) != 1 || e.forced[0] != "192.0.2.1:1234//admin page: 3 a/\xff b true []" || len(e.freed) != 1 || e.freed[0] != "3 a/\xff b" {
		t.Fatalf("%d, forced %q", w.Code, e.forced)
	}
	has(t, ask(t, p, "GET", "http://127.0.0.1"+w.Header().Get("Location"), "").Body.String(), "It was freed.")
	e.fails = errors.New("<no> node")
	has(t, ask(t, p, "POST", at, "sure=yes").Body.String(), "Nothing was freed: &lt;no&gt; node")
}

// The lock with the empty name is a lock like any other: the link to it can be seen, and it can be freed.
func TestLockWithoutName(t *testing.T) {
	e := &engine{list: []lock.Entry{held("", "10.1.1.1:1")}, info: lock.Info{Holders: []lock.Holder{{Owned: lockstore.Owned{Owner: "u:1"}}}}}
	e.lost = []events.Event{lost("", "worker-7", "gone")}
	p := New(e.options())
	text := ask(t, p, "GET", home+"/", "").Body.String() + ask(t, p, "GET", home+"/events", "").Body.String()
	has(t, text, `href="/lock?db=0&amp;name="><span class="note">empty name</span></a>`)
	if n := strings.Count(text, ">empty name<"); n != 2 {
		t.Errorf("of two names %d are told", n)
	}
	at := home + "/lock?db=0&name="
	has(t, ask(t, p, "GET", at, "").Body.String(), "10.1.1.1:1", `action="/lock?db=0&amp;name="`, `<h2><span class="note">empty name</span></h2>`)
	w := ask(t, p, "POST", at, "sure=yes")
	if w.Code != http.StatusSeeOther || len(e.forced) != 1 || e.forced[0] != "192.0.2.1:1234//admin page: 0  true []" {
		t.Fatalf("%d, forced %q", w.Code, e.forced)
	}
	has(t, ask(t, p, "GET", "http://127.0.0.1"+w.Header().Get("Location"), "").Body.String(), "It was freed.")
}

// A page of somebody else's, in the same browser, frees nothing.
func TestForceFromElsewhere(t *testing.T) {
	e := &engine{}
	p := New(e.options())
	at := home + "/lock?db=0&name=a"
	for _, header := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "http://evil.example"}, {"Origin", "null"}, {"Origin", "http://127.0.0.1:9999"},
	} {
		if w := ask(t, p, "POST", at, "sure=yes", header...); w.Code != http.StatusForbidden {
			t.Errorf("%q: %d", header, w.Code)
		}
	}
	if len(e.forced) != 0 {
		t.Errorf("forced %q", e.forced)
	}
	for _, header := range [][]string{{"Sec-Fetch-Site", "same-origin"}, {"Origin", "http://127.0.0.1:9181"}, {}} {
		if w := ask(t, p, "POST", at, "sure=yes", header...); w.Code != http.StatusSeeOther {
			t.Errorf("%q: %d", header, w.Code)
		}
	}
}

// Nor does it make the page ask Redis about locks. A link on it leads to the first page.
func TestLookFromElsewhere(t *testing.T) {
	e := &engine{fails: errors.New("no")}
	p := New(e.options())
	for _, path := range []string{"/lock?db=7&name=a", "/parts"} {
		if w := ask(t, p, "GET", home+path, "", "Sec-Fetch-Site", "cross-site"); w.Code != http.StatusForbidden {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	for _, site := range []string{"none", "same-origin", "same-site"} {
		if w := ask(t, p, "GET", home+"/lock?db=7&name=a", "", "Sec-Fetch-Site", site); w.Code != http.StatusOK {
			t.Errorf("%s: %d", site, w.Code)
		}
	}
	if w := ask(t, p, "GET", home+"/", "", "Sec-Fetch-Site", "cross-site"); w.Code != http.StatusOK {
		t.Errorf("a link to the page: %d", w.Code)
	}
}

// A name of somebody else's that leads to this machine does not lead to the page.
func TestHostOfThePage(t *testing.T) {
	p := New((&engine{}).options())
	for host, want := range map[string]int{
		"127.0.0.1:9181": 200, "localhost:9181": 200, "[::1]:9181": 200, "[::1]": 200, "127.0.0.1": 200, "localhost": 200, "127.1.2.3:1": 200,
		"evil.example:9181": 403, "evil.example": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example:9181": 403, "10.0.0.1:9181": 403, "": 403,
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", home+"/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		if p.Handler().ServeHTTP(w, r); w.Code != want {
			t.Errorf("%q: %d, want %d", host, w.Code, want)
		}
	}
}

func TestToken(t *testing.T) {
	var log bytes.Buffer
	e, token := &engine{}, "correct horse battery"
	o := e.options()
	o.Log, o.Credentials.Token = slog.New(slog.NewTextHandler(&log, nil)), func() string { return token }
	p := New(o)
	r := httptest.NewRequest("GET", "/", nil)
	r.SetBasicAuth("ann", token)
	good := r.Header.Get("Authorization")
	for header, want := range map[string]int{
		"": 401, "Bearer ": 401, "Bearer " + token + "x": 401, "Bearer " + token[1:]: 401, token: 401, "Basic " + token: 401, "Bearer " + token: 200, good: 200,
	} {
		for _, path := range []string{"/", "/parts?page=/", "/lock?db=0&name=a", "/style.css"} {
			w := ask(t, p, "GET", "http://proxy.internal:9181"+path, "", "Authorization", header)
			if w.Code != want || want == 401 && (w.Header().Get("WWW-Authenticate") == "" || strings.Contains(w.Body.String(), "lockproxy")) {
				t.Errorf("%q, %s: %d", header, path, w.Code)
			}
		}
	}
	if n := strings.Count(log.String(), "wrong token"); n != 20 { // lines are bounded for all in one place: loglimit
		t.Errorf("the log has it %d times", n)
	}
	if w := ask(t, p, "POST", "http://proxy.internal:9181/lock?db=0&name=a", "sure=yes"); w.Code != 401 || len(e.forced) != 0 {
		t.Errorf("%d, forced %q", w.Code, e.forced)
	}
	ask(t, p, "POST", "http://proxy.internal:9181/lock?db=0&name=a", "sure=yes", "Authorization", good)
	if len(e.forced) != 1 || !strings.Contains(e.forced[0], "/ann/") {
		t.Errorf("forced %q", e.forced)
	}
	token = "another one of those"
	if w := ask(t, p, "GET", "http://proxy.internal:9181/", "", "Authorization", good); w.Code != 401 {
		t.Errorf("a token that was taken away: %d", w.Code)
	}
}

func TestCertificate(t *testing.T) {
	o := (&engine{}).options()
	o.Credentials.Certificates = true
	p := New(o)
	r := httptest.NewRequestWithContext(t.Context(), "GET", "https://proxy.internal/", nil)
	for _, c := range []struct {
		with *tls.ConnectionState
		want int
	}{{nil, 403}, {&tls.ConnectionState{}, 403}, {&tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{}}}, 200}} {
		r.TLS = c.with
		w := httptest.NewRecorder()
		if p.Handler().ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%v: %d", c.with, w.Code)
		}
	}
}

// A page that everybody may see is never open to others than this machine.
func TestOpenPageIsForLoopback(t *testing.T) {
	p := New((&engine{}).options())
	if err := p.Listen(t.Context(), net.ListenConfig{}, "0.0.0.0:0", nil); err == nil || !strings.Contains(err.Error(), "not loopback") {
		t.Error(err)
	}
	p.Close()
}

// served is a page at an address of its own.
func served(t testing.TB, o Options) (*Page, string) {
	t.Helper()
	p := New(o)
	if err := p.Listen(t.Context(), net.ListenConfig{}, "127.0.0.1:0", nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, "http://" + p.server.Addr().String()
}

// TestPartsThatHaveChanged: a browser says what it has, and is told of what is not so any more, until the token is replaced.
func TestPartsThatHaveChanged(t *testing.T) {
	e := &engine{list: []lock.Entry{held("first", "10.1.1.1:1")}}
	o, token := e.options(), "correct horse battery"
	o.Credentials.Token = func() string { return token }
	p := New(o)
	look := func(have ...string) (n news) {
		t.Helper()
		w := ask(t, p, "GET", home+"/parts?page=/&have="+strings.Join(have, ","), "", "Authorization", "Bearer correct horse battery")
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
			t.Fatal(w.Code, w.Header())
		}
		if err := json.Unmarshal(w.Body.Bytes(), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	all := look()
	if len(all.Parts) != 3 || all.Next < rest.Milliseconds() {
		t.Errorf("%d parts, the next in %d ms", len(all.Parts), all.Next)
	}
	has(t, all.Parts["locks"].HTML, "name=first")
	var have []string
	for _, part := range all.Parts {
		have = append(have, part.Mark)
	}
	e.list = []lock.Entry{held("second", "10.1.1.1:1")}
	changed := look(have...)
	if _, same := changed.Parts["redis"]; same {
		t.Error("what is as before is sent again")
	}
	has(t, changed.Parts["locks"].HTML, "name=second")
	token = "another one of those"
	if w := ask(t, p, "GET", home+"/parts?page=/", "", "Authorization", "Bearer correct horse battery"); w.Code != http.StatusUnauthorized {
		t.Errorf("a token that was replaced: %d", w.Code)
	}
}

// TestRestAfter: what costs much is asked for less often, within bounds.
func TestRestAfter(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{0: rest, time.Millisecond: rest, 20 * time.Millisecond: 4 * time.Second, time.Minute: restMost} {
		if got := restAfter(took); got != want {
			t.Errorf("after %v a browser rests for %v", took, got)
		}
	}
}

// TestForceTakesItFromThoseThatWereShown: the form names the holders, whatever bytes and kind they have, and those alone are asked for.
func TestForceTakesItFromThoseThatWereShown(t *testing.T) {
	holders := []lock.Holder{
		{Owned: lockstore.Owned{Owner: "u:1", Kind: lockstore.Read, Holds: 2}, Local: true}, {Owned: lockstore.Owned{Owner: "\xff \"%41&b", Kind: lockstore.Write, Holds: 1}},
	}
	e := &engine{info: lock.Info{Info: lockstore.Info{Kind: "write"}, Holders: holders}}
	p := New(e.options())
	at := home + "/lock?db=0&name=a"
	form := url.Values{"sure": {"yes"}}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="holder" value="([^"]*)">`).FindAllStringSubmatch(ask(t, p, "GET", at, "").Body.String(), -1) {
		form.Add("holder", html.UnescapeString(m[1]))
	}
	e.kept = true
	w := ask(t, p, "POST", at, form.Encode())
	if want := fmt.Sprint([]lockstore.Owned{{Owner: "u:1", Kind: lockstore.Read}, {Owner: "\xff \"%41&b", Kind: lockstore.Write}}); len(e.forced) != 1 || !strings.HasSuffix(e.forced[0], want) {
		t.Fatalf("forced %q, not %s", e.forced, want)
	}
	has(t, ask(t, p, "GET", "http://127.0.0.1"+w.Header().Get("Location"), "").Body.String(), "Nothing was freed: whoever was shown holds it no longer.")
	for _, bad := range []string{"u:1", "plain", "plain:%x", "other:u:1"} {
		if w := ask(t, p, "POST", at, url.Values{"sure": {"yes"}, "holder": {bad}}.Encode()); w.Code != http.StatusBadRequest && bad != "plain" || len(e.forced) > 2 {
			t.Errorf("%q: %d, forced %q", bad, w.Code, e.forced)
		}
	}
}

// TestLockShowsWhatRedisSays: whoever Redis does not name holds nothing any more, whatever this proxy has yet to hear, and whoever waited here and
// is named holds the lock. Without an answer those are shown that this proxy knows, and none can be freed.
func TestLockShowsWhatRedisSays(t *testing.T) {
	e := &engine{list: []lock.Entry{held("a", "10.1.1.1:1"), waits("a", "10.1.1.2:2", time.Second)}}
	o := e.options()
	o.About.Proxy = "u"
	e.info = lock.Info{Info: lockstore.Info{Kind: "plain"}, Holders: []lock.Holder{{Owned: lockstore.Owned{Owner: "u:2"}}}}
	p := New(o)
	text := ask(t, p, "GET", home+"/lock?db=0&name=a", "").Body.String()
	if has(t, text, "u:2", "through this proxy, since a moment ago", `value="plain:u:2"`); strings.Contains(text, "10.1.1.1:1") || strings.Contains(text, "10.1.1.2:2") {
		t.Errorf("the former holder is shown, or the new one waits:\n%s", text)
	}
	e.info = lock.Info{Info: lockstore.Info{Kind: "none"}}
	if text = ask(t, p, "GET", home+"/lock?db=0&name=a", "").Body.String(); strings.Contains(text, "10.1.1.1:1") || strings.Contains(text, "<form") {
		t.Errorf("nobody holds it:\n%s", text)
	}
	e.fails = errors.New("no node")
	text = ask(t, p, "GET", home+"/lock?db=0&name=a", "").Body.String()
	if has(t, text, "no node", "10.1.1.1:1", "10.1.1.2:2"); strings.Contains(text, "<form") {
		t.Errorf("a lock can be freed of whose holder nothing is known:\n%s", text)
	}
}

// TestPageSaysWhyNoLockCanBeHad, and what is bad: an end that was asked for is not.
func TestPageSaysWhyNoLockCanBeHad(t *testing.T) {
	e := &engine{lost: []events.Event{lost("a", "", "forced"), lost("b", "", "expired")}}
	e.lost[0].Kind, e.lost[1].Kind = events.End, events.End
	p := New(e.options())
	if text := ask(t, p, "GET", home+"/", "").Body.String(); strings.Contains(text, "no locks") || strings.Contains(text, `class="card bad"`) {
		t.Errorf("something is bad in:\n%s", text)
	}
	e.unable = errors.New("OOM <full>")
	e.events.Add(lost("c", "", "unrenewed"))
	text := ask(t, p, "GET", home+"/", "").Body.String() + ask(t, p, "GET", home+"/events", "").Body.String()
	if has(t, text, "<b>no locks</b>", "OOM &lt;full&gt;", `class="card bad"`); strings.Count(text, `<tr class="bad">`) != 1 {
		t.Errorf("not one loss is bad in:\n%s", text)
	}
}

// A node that hangs is waited for once.
func TestHangingNode(t *testing.T) {
	o := (&engine{}).options()
	asked, hang := make(chan struct{}, 10), make(chan struct{})
	o.Nodes = func(context.Context) []Node {
		asked <- struct{}{}
		<-hang
		return []Node{{Name: "slow", State: "up"}}
	}
	p := New(o)
	defer p.Close()
	defer close(hang)
	p.health.at = time.Now().Add(-healthFor - time.Second)
	for range 3 {
		if _, nodes := p.health.now(t.Context(), p); len(nodes) != 0 {
			t.Error(nodes)
		}
	}
	<-asked
	if len(asked) != 0 {
		t.Error("it is asked again meanwhile")
	}
	if trouble, nodes := p.health.now(t.Context(), p); trouble != nil || nodes != nil {
		t.Error(trouble, nodes)
	}
}

// Of ten thousand locks those are drawn that are shown. How long that takes is written out.
func TestManyLocks(t *testing.T) {
	e := &engine{}
	for i := range 10000 {
		e.list = append(e.list, held(fmt.Sprintf("orders:%06d", i), "10.1.1.1:1"))
		if i == 7777 {
			for n := range 500 {
				e.list = append(e.list, waits(fmt.Sprintf("orders:%06d", i), fmt.Sprint("10.1.2.3:", n), time.Second))
			}
		}
	}
	p := New(e.options())
	text := ask(t, p, "GET", home+"/", "").Body.String()
	has(t, text, "200 of 10,000 locks", "and 496 more")
	if n := strings.Count(text, "<tbody>"); n != mostRows {
		t.Errorf("%d rows", n)
	}
	if at := strings.Index(text, "orders:007777"); at < 0 || at > strings.Index(text, "orders:000000") {
		t.Error("the one that is waited for is not first")
	}
	for range 2 {
		began := time.Now()
		size := ask(t, p, "GET", home+"/parts?page=/", "").Body.Len()
		if t.Logf("10,000 locks: %v to see and draw, %d bytes", time.Since(began), size); size > 1<<20 {
			t.Errorf("%d bytes", size)
		}
	}
}

func BenchmarkDraw(b *testing.B) {
	e := &engine{}
	for i := range 10000 {
		e.list = append(e.list, held(fmt.Sprintf("orders:%06d", i), "10.1.1.1:1"))
	}
	p := New(e.options())
	r := httptest.NewRequestWithContext(b.Context(), "GET", home+"/parts?page=/", nil)
	for b.Loop() {
		changed(sheets()[0].sections(p, r), nil)
	}
}
