// Package admission lets newcomers in where there are as many connections as there may be.
package admission

import (
	"net"
	"slices"
	"sync"
)

// Newest are at most so many connections: a newcomer gets the place of the oldest, whatever that does. It may say nothing,
// or nothing more, or not read its answer, or have a request at work.
type Newest struct {
	Most int

	mu    sync.Mutex // guards conns
	conns []net.Conn // the oldest first
}

// Enter lets a connection in, and closes the oldest if there are too many then.
func (n *Newest) Enter(c net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.conns) == n.Most {
		n.conns[0].Close()
		n.conns = slices.Delete(n.conns, 0, 1)
	}
	n.conns = append(n.conns, c)
}

// Leave frees the place of a connection, if it still has one.
func (n *Newest) Leave(c net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = slices.DeleteFunc(n.conns, func(other net.Conn) bool { return other == c })
}
