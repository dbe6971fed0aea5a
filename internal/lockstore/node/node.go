// Package node is one Redis that keeps locks: its clock, what its account may do, the scripts that run there, and the
// messages that come from there.
package node

import "github.com/lockproxy/lockproxy/upstream"

// Node is one Redis.
type Node struct {
	Control *upstream.Control
	Clock   Clock
	Account Account
}
