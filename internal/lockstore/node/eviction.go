package node

import (
	"context"

	"github.com/lockproxy/lockproxy/upstream"
)

// A Redis that evicts keys when its memory is full may evict locks, and whoever holds one hears LOCKLOST while the next
// one has it.

// evicts is the policy by which the node may evict locks; "": it does not, or does not tell.
func (n *Node) evicts() string {
	client, err := n.Control.Client(0)
	if err != nil {
		return ""
	}
	text, err := client.Do(context.Background(), client.B().Info().Section("memory").Build()).ToString()
	if err != nil {
		return ""
	}
	return evicting(text)
}

// evicting is the policy by which a Redis evicts keys when its memory is full, as its INFO memory says; "": it evicts
// none. Locks expire, so the policies that evict only keys that expire concern them as well.
func evicting(memory string) string {
	limit, policy := upstream.InfoField(memory, "maxmemory"), upstream.InfoField(memory, "maxmemory_policy")
	if limit == "0" || policy == "noeviction" {
		return ""
	}
	return policy
}
