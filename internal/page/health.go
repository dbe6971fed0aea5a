package page

import (
	"context"
	"sync"
	"time"
)

// health is how the proxy and its nodes were when they were last asked.
type health struct {
	mu      sync.Mutex // guards all below
	trouble []string
	nodes   []Node
	at      time.Time
	asking  chan struct{} // closed when the answer is there; nil: nobody asks
	over    bool          // nobody is to ask any more
}

const (
	// An answer is given again for healthFor, and for healthOld while the next one is asked for.
	healthFor, healthOld = 4 * time.Second, 8 * time.Second
	healthTime           = 2 * time.Second // for an answer
)

// now is how the proxy and its nodes are. While somebody looks the last answer is given until the next one is there, so
// that a node that hangs holds nobody up; who comes later waits for the next.
func (h *health) now(ctx context.Context, p *Page) ([]string, []Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.at) > healthFor && h.asking == nil && !h.over {
		h.asking = make(chan struct{})
		p.parts.Go(p.askHealth)
	}
	if asking := h.asking; asking != nil && time.Since(h.at) > healthOld {
		h.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
		}
		h.mu.Lock()
	}
	return h.trouble, h.nodes
}

// askHealth asks how the proxy and its nodes are.
func (p *Page) askHealth() {
	ctx, cancel := context.WithTimeout(context.Background(), healthTime)
	defer cancel()
	trouble, nodes := p.Trouble(ctx), p.Nodes(ctx)
	h := &p.health
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trouble, h.nodes, h.at = trouble, nodes, time.Now()
	close(h.asking)
	h.asking = nil
}
