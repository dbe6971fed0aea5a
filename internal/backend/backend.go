// Package backend forwards ordinary commands to Redis: one Redis, which Sentinels may name, or the nodes of a cluster.
// Nobody above asks which.
package backend

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// Backend is the process' access to the Redis for ordinary commands. Its values can be compared.
type Backend interface {
	// Node returns a node for questions that any node can answer.
	Node() *upstream.Node
	// Authenticate asks Redis whether a user may log in, Admit whether it serves a client that does not. from is the
	// client's address: addresses take turns.
	Authenticate(ctx context.Context, from, user, password string) error
	Admit(ctx context.Context, from string) error
	// Renew replaces the connections of the identities for which concerned returns true.
	Renew(concerned func(upstream.Identity) bool)
	// Tell makes the backend call the functions of n from now on.
	Tell(Notices)
	// RetryFor is for how long a command waits until it can be sent.
	RetryFor() time.Duration
	// Misnamed warns of a Redis that is not what its address says. ask asks it as the service account.
	Misnamed(ask func(words ...string) ([]byte, error)) (warning string, err error)
	// Describe calls line for each of the backend's lines in INFO.
	Describe(line func(name string, value any))
	// Members returns the known nodes, masters first.
	Members() []Member
	// path makes the path of one client's Forwarder.
	path(*Forwarder) path
}

// Notices are the functions that a backend calls when something happens, at any time, from any goroutine.
type Notices struct {
	Refused  func(upstream.Identity, *upstream.ReplyError) // Redis does not let an identity in any more
	Topology func()                                        // the nodes have changed, or their slots
}

// Member is one node of what is upstream.
type Member struct {
	*upstream.Node
	ID    string // of a cluster's node
	Addr  string // "": not known yet
	Role  string // master, or replica of a cluster
	Slots int    // of a cluster
	// Trouble says that a cluster's node does not answer, as is known without asking it; nil: nothing is known.
	Trouble error
}

// QuestionTime is how long the proxy's own questions to Redis may take.
const QuestionTime = 5 * time.Second
