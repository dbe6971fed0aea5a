package session

import (
	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/upstream"
)

// way is how one client has connections to Redis of its own: at the one there is, or at the nodes of a cluster.
type way interface {
	// dispatch has a command run, in a transaction perhaps; answer, if there is one, answers it here.
	dispatch(cmd redcon.Command, c *commandtable.Command, answer answer)
	openDedicated() (*dedicatedConn, error)
	// left is told that a connection of the session's own at that node has ended.
	left(n *cluster.Node)
	fenced(r lock.HoldRequest, c *commandtable.Command, args [][]byte) error
	helloSubscriptions(id upstream.Identity) error
	dropSubscriptions()
}

// single is how a client has a connection of its own to one Redis.
type single struct {
	s    *Session
	node *upstream.Node
}

// helloSubscriptions has nothing to do: subscriptions are on the session's own connection.
func (u *single) helloSubscriptions(upstream.Identity) error { return nil }

// dropSubscriptions has nothing to do: they end with the session's own connection.
func (u *single) dropSubscriptions() {}

// left has nothing to do: see upstream.Node.
func (u *single) left(*cluster.Node) {}
