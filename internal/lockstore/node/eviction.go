package node

import (
	"context"
	"log/slog"

	"github.com/lockproxy/lockproxy/upstream"
)

// A Redis that evicts keys when its memory is full may evict locks, and whoever holds one hears LOCKLOST while the next one has it.

// warnOfEviction logs that the node may evict locks, once for each policy. A node that does not tell is not asked for the reason.
func (a *Account) warnOfEviction(s Site) {
	client, err := s.Node.Control.Client(0)
	if err != nil {
		return
	}
	text, err := client.Do(context.Background(), client.B().Info().Section("memory").Build()).ToString()
	if err != nil {
		return
	}
	policy := evicting(text)
	if policy != a.evicts && policy != "" {
		s.Log.Warn("Redis may evict locks when its memory is full: set maxmemory-policy to noeviction, or keep the locks on another Redis",
			slog.String("maxmemory-policy", policy))
	}
	a.evicts = policy
}

// evicting is the policy by which a Redis evicts keys when its memory is full, as its INFO memory says; "": it evicts none. Locks expire, so the
// policies that evict only keys that expire concern them as well.
func evicting(memory string) string {
	limit, policy := upstream.InfoField(memory, "maxmemory"), upstream.InfoField(memory, "maxmemory_policy")
	if limit == "0" || policy == "noeviction" {
		return ""
	}
	return policy
}
