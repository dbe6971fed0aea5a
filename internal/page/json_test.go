package page

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"testing"
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
