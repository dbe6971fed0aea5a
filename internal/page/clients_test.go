package page

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/inforce"
)

func TestClients(t *testing.T) {
	e := &engine{clients: []Client{{ID: 7, Addr: "10.0.0.1:5", Name: "job", User: "app", Locks: 3, WaitsFor: "l<1>", Idle: 90000, Last: "lock"}}}
	var asked []string
	o := e.options()
	clients := o.Clients
	o.Clients = func(most int, part string) ([]Client, int) {
		asked = append(asked, part)
		return clients(most, part)
	}
	p := New(o)
	has(t, ask(t, p, "GET", home+"/clients?name=10.%22", "").Body.String(), "1 of 1,001 clients", `href="/client?id=7"`, "10.0.0.1:5", "#7", "job", "app",
		"l&lt;1&gt;", "1 min 30 s", `value="10.&#34;"`)
	if len(asked) != 1 || asked[0] != `10."` {
		t.Errorf("asked for %q", asked)
	}
	has(t, ask(t, p, "GET", home+"/parts?page=/clients&name=x", "").Body.String(), "10.0.0.1:5")
	if asked[1] != "x" {
		t.Errorf("asked for %q", asked)
	}
	var got struct {
		Of      int
		Clients []map[string]any
	}
	if err := json.Unmarshal(ask(t, p, "GET", home+"/clients.json", "").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Of != 1001 || len(got.Clients) != 1 || got.Clients[0]["idle_ms"] != 90000.0 || got.Clients[0]["waits_for"] != "l<1>" || got.Clients[0]["id"] != 7.0 {
		t.Errorf("%v", got)
	}
	e.clients = nil
	has(t, ask(t, p, "GET", home+"/clients", "").Body.String(), "No client has that.")
	has(t, ask(t, p, "GET", home+"/clients.json", "").Body.String(), `"clients":[]`)
}

// TestKill: a client is closed when somebody is sure, and only the one that was shown: its number may be another's in
// the process that has come in place of this one.
func TestKill(t *testing.T) {
	var log bytes.Buffer
	e := &engine{clients: []Client{{ID: 7, Addr: "/run/a&b", Name: "job", Locks: 3}}}
	o := e.options()
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	p := New(o)
	at := home + "/client?id=7"
	has(t, ask(t, p, "GET", at, "").Body.String(), `action="/client?id=7"`, "required", `value="%2Frun%2Fa&amp;b"`, `value="the-id"`, `<td class="fig" data-label="locks">3</td>`,
		"they end with their leases")
	form := func(addr, proxy, sure string) string {
		return url.Values{"addr": {url.PathEscape(addr)}, "proxy": {proxy}, "sure": {sure}}.Encode()
	}
	good := form("/run/a&b", "the-id", "yes")
	for target, body := range map[string]string{at: form("/run/a&b", "the-id", ""), home + "/client": good, home + "/client?id=x": good, at + "&sure=yes&addr=x": "a=b",
		at + "1&": strings.Repeat("a", mostForm) + "&sure=yes"} {
		if w := ask(t, p, "POST", target, body); w.Code != http.StatusBadRequest {
			t.Errorf("%.60s, %.40q: %d", target, body, w.Code)
		}
	}
	if ask(t, p, "GET", at+"&"+good, ""); len(e.killed) != 0 {
		t.Fatalf("killed %q", e.killed)
	}
	for _, c := range []struct{ target, body, said string }{
		{at, form("/run/a&b", "another", "yes"), "gone"}, {at, form("/run/a", "the-id", "yes"), "gone"}, {home + "/client?id=8", good, "gone"}, {at, good, "closed"},
	} {
		w := ask(t, p, "POST", c.target, c.body, "Sec-Fetch-Site", "same-origin")
		if to := w.Header().Get("Location"); w.Code != http.StatusSeeOther || to != "/clients?said="+c.said {
			t.Errorf("%s %s: %d to %s", c.target, c.body, w.Code, to)
		}
	}
	if got := strings.Join(e.killed, ", "); got != "7 /run/a, 8 /run/a&b, 7 /run/a&b" {
		t.Errorf("killed %s", got)
	}
	if n := strings.Count(log.String(), "a client was closed at the page"); n != 1 || !strings.Contains(log.String(), "id=7") {
		t.Errorf("%s", log.String())
	}
	has(t, ask(t, p, "GET", home+"/clients?said=closed", "").Body.String(), "It was closed.")
	e.clients = nil
	if w := ask(t, p, "GET", at, ""); w.Header().Get("Location") != "/clients?said=gone" {
		t.Errorf("of one that has gone: %d", w.Code)
	}
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "http://evil.example"}, {"Sec-Fetch-Site", "same-site"}} {
		if w := ask(t, p, "POST", at, good, header...); w.Code != http.StatusForbidden {
			t.Errorf("%v: %d", header, w.Code)
		}
	}
}

func TestSettings(t *testing.T) {
	e := &engine{
		state: inforce.State{
			Settings: []inforce.Setting{{Name: "deny", Value: "get,set", From: "file", Live: true}, {Name: "listen", Value: ":1", From: "flag", Waiting: new("")}},
			Reload:   inforce.Reload{At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Faults: []string{"line 3: <bad>"}, Taken: []string{"a.pem"}},
		},
	}
	p := New(e.options())
	text := ask(t, p, "GET", home+"/settings", "").Body.String()
	has(t, text, "2026-01-02 03:04:05 UTC", "line 3: &lt;bad&gt;", "taken: a.pem", `class="said bad"`, "get,set", "by a reload",
		"by a restart, for which <bdi>(nothing)</bdi> waits")
	has(t, ask(t, p, "GET", home+"/settings.json", "").Body.String(), `{"name":"listen","value":":1","from":"flag","live":false,"waiting":""}`,
		`"waiting":null`, `"last_reload":{"at":"2026-01-02T03:04:05Z","taken":["a.pem"],"faults":["line 3: <bad>"]}`)
}
