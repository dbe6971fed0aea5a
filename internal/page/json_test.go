package page

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/proxies"
)

// fieldsOf asks a page for JSON, and returns what it answers.
func fieldsOf(t *testing.T, p *Page, path string) (all map[string]any) {
	t.Helper()
	w := ask(t, p, http.MethodGet, home+path, "")
	if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil || w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%s: %d, %v, %s\n%s", path, w.Code, err, w.Header().Get("Content-Type"), w.Body)
	}
	return all
}

func TestNodesAsJSON(t *testing.T) {
	p := New((&engine{unable: errors.New("NOPERM \"eval\" <x> \xff")}).options())
	t.Cleanup(p.Close)
	want := map[string]any{"proxy": "the-id", "ready": true, "trouble": []any{}, "no_locks": "NOPERM \"eval\" <x> \uFFFD", "nodes": []any{
		map[string]any{"name": "10.0.0.1:6379", "role": "master", "state": "up", "took_ms": 1.0},
		map[string]any{"name": "10.0.0.2:6379", "role": "replica", "state": "down", "trouble": "dial: <refused>"},
	}}
	if got := fieldsOf(t, p, "/nodes.json"); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}

// A name in an address is any bytes.
func TestLockAsJSON(t *testing.T) {
	for path, want := range map[string]string{"/locks/a.json": "a", "/locks/.json?db=3": "", "/locks/a%2F%2Fb.json": "a//b", "/locks/%2E%2E%2Fx.json": "../x", "/locks/%FF%00.json": "\xff\x00", "/locks/x.json.json": "x.json"} {
		var told proxies.Lock
		w := ask(t, New((&engine{}).options()), "GET", home+path, "")
		if err := json.Unmarshal(w.Body.Bytes(), &told); err != nil || told.Name != want && string(told.Bytes) != want {
			t.Errorf("%s: %d, %q, %v", path, w.Code, told.Name, err)
		}
	}
	for _, path := range []string{"/locks/a", "/locks/a.json?db=x", "/locks/a.json?db=-1", "/locks.json?limit=x", "/locks/" + strings.Repeat("x", 5000) + ".json"} {
		if w := ask(t, New((&engine{}).options()), "GET", home+path, ""); w.Code != 400 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// Locks come with how many there are, how old that is, and who has not answered.
func TestLocksAsJSON(t *testing.T) {
	e := &engine{list: []lock.Entry{held("a", "10.1.1.1:1"), held("b\xff", "10.1.1.1:1")}}
	e.others = []proxies.State{{State: "down"}}
	got := fieldsOf(t, New(e.options()), "/locks.json?sort=name&limit=1")
	if got["of"] != 2.0 || len(got["locks"].([]any)) != 1 || got["age_ms"].(float64) > 5000 || !reflect.DeepEqual(got["silent"], []any{"a proxy that has not said its name"}) {
		t.Errorf("%v", got)
	}
	if got := fieldsOf(t, New(e.options()), "/locks.json?here=1&name=b"); got["of"] != 1.0 || got["locks"].([]any)[0].(map[string]any)["name_base64"] != "Yv8=" {
		t.Errorf("%v", got)
	}
	if got := fieldsOf(t, New(e.options()), "/proxies.json")["proxies"].([]any); len(got) != 2 || got[0].(map[string]any)["state"] != "self" || got[0].(map[string]any)["holds"] != 0.0 {
		t.Errorf("%v", got)
	}
}
