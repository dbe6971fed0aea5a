package page

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/proxies"
)

// happened are events as an engine would tell of them.
func happened() *engine {
	grant := lost("orders:1", "u:1", "")
	grant.Kind, grant.Verb, grant.Waited, grant.Client = events.Grant, "LOCK", 5*time.Millisecond, events.Client{Addr: "10.1.1.1:1", User: "app", Name: "job"}
	loss, wait := lost("orders:1", "u:1", "unrenewed"), grant
	wait.Kind, wait.Key, wait.Reason, wait.DB, wait.Side = events.Wait, "orders:2", "granted", 3, "read"
	more := events.Event{At: time.Now(), Kind: events.Login, Client: events.Client{Addr: "10.6.6.6:6"}, Reason: "WRONGPASS <no>"}
	return &engine{lost: []events.Event{grant, loss, wait, more}}
}

// The page of events shows them newest first, of one kind or of some locks if that is asked for.
func TestPageOfEvents(t *testing.T) {
	p := New(happened().options())
	text := ask(t, p, "GET", home+"/events", "").Body.String()
	has(t, text, "unrenewed", "LOCK, took 5 ms", "10.1.1.1:1", "job", "WRONGPASS &lt;no&gt;", `href="/lock?db=3&amp;name=orders%3A2"`, ">db 3<", ">read<", `<option value="busy">`)
	if strings.Index(text, "WRONGPASS") > strings.Index(text, "unrenewed") || strings.Count(text, `<tr class="bad">`) != 1 {
		t.Errorf("the order, or what is bad:\n%s", text)
	}
	for query, want := range map[string]int{"": 4, "?name=orders:1": 2, "?name=orders:1&kind=loss": 1, "?kind=login": 1, "?name=x": 0, "?kind=no": 0} {
		text := ask(t, p, "GET", home+"/events"+query, "").Body.String()
		if got := strings.Count(text, `<td class="fig">`); got != want {
			t.Errorf("%s: %d events", query, got)
		}
	}
}

// What has happened at other proxies stands there with its proxy, and so does who has not answered.
func TestEventsOfOtherProxies(t *testing.T) {
	const other, gone = "11111111-d9cb-469f-a165-70867728950e", "22222222-d9cb-469f-a165-70867728950e"
	e := happened()
	e.others = []proxies.State{{Proxy: proxies.Proxy{ID: other, Host: "<east>"}, State: "up"}, {Proxy: proxies.Proxy{ID: gone, Host: "west"}, State: "down"}}
	away := lost("orders:9", other+":1", "failover")
	away.Proxy = other
	e.away = []events.Event{away}
	p := New(e.options())
	text := ask(t, p, "GET", home+"/events", "").Body.String()
	has(t, text, "orders:9", "failover", "at <bdi>&lt;east&gt; "+other[:8], "says what has happened at west "+gone[:8])
	if strings.Count(text, "at <bdi>") != 1 {
		t.Errorf("this proxy is named:\n%s", text)
	}
	var got struct {
		Silent []string
		Events []struct{ Proxy string }
	}
	if err := json.Unmarshal(ask(t, p, "GET", home+"/events.json", "").Body.Bytes(), &got); err != nil || len(got.Silent) != 1 || len(got.Events) != 5 || got.Events[4].Proxy != other {
		t.Errorf("%v, %+v", err, got)
	}
	if text := ask(t, p, "GET", home+"/events.json?here=1", "").Body.String(); strings.Contains(text, other) {
		t.Errorf("here: %s", text)
	}
}

// Scripts get the same as JSON, from a time on if they say one.
func TestEventsAsJSON(t *testing.T) {
	e := happened()
	e.lost[0].At = time.Now().Add(-time.Hour)
	p := New(e.options())
	since := url.QueryEscape(time.Now().Add(-time.Minute).Format(time.RFC3339))
	for query, want := range map[string]int{"": 4, "?name=orders": 3, "?kind=wait": 1, "?limit=2": 2, "?limit=0": 0, "?limit=99999999": 4, "?since=" + since: 3,
		"?limit=x": -1, "?limit=-1": -1, "?since=noon": -1, "?kind=no": -1} {
		w := ask(t, p, "GET", home+"/events.json"+query, "")
		if want < 0 {
			if w.Code != http.StatusBadRequest {
				t.Errorf("%s: %d", query, w.Code)
			}
			continue
		}
		var got struct {
			Proxy  string
			Events []struct {
				ID    uint64
				Event string
			}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Proxy != "the-id" || got.Events == nil || len(got.Events) != want {
			t.Errorf("%s: %v in %s", query, err, w.Body)
		}
	}
}
