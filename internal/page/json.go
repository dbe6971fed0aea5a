package page

import (
	"encoding/json"
	"net/http"
	"time"
)

// sendJSON answers with a value as JSON.
func sendJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false) // it is no HTML document
	_ = out.Encode(value)    // whoever asked has hung up if this fails
}

// nodeJSON is one Redis in /nodes.json.
type nodeJSON struct {
	Name    string  `json:"name"`
	Role    string  `json:"role"`
	State   string  `json:"state"`
	Trouble string  `json:"trouble,omitempty"`
	Took    float64 `json:"took_ms,omitempty"`
	NoLocks string  `json:"no_locks,omitempty"`
}

// nodesJSON answers how the proxy and its nodes are.
func (p *Page) nodesJSON(w http.ResponseWriter, r *http.Request) {
	answer := struct {
		Proxy   string     `json:"proxy"`
		Ready   bool       `json:"ready"`
		Trouble []string   `json:"trouble"`
		NoLocks string     `json:"no_locks,omitempty"`
		Nodes   []nodeJSON `json:"nodes"`
	}{Proxy: p.About.Proxy, Trouble: []string{}, Nodes: []nodeJSON{}}
	trouble, nodes := p.health.now(r.Context(), p)
	answer.Ready, answer.Trouble = len(trouble) == 0, append(answer.Trouble, trouble...)
	if _, err := p.Able(); err != nil {
		answer.NoLocks = err.Error()
	}
	for _, n := range nodes {
		answer.Nodes = append(answer.Nodes, nodeJSON{Name: n.Name, Role: n.Role, State: n.State, Trouble: n.Trouble,
			Took: float64(n.Took) / float64(time.Millisecond), NoLocks: n.NoLocks})
	}
	sendJSON(w, answer)
}
