// Package backend is Redis as ordinary commands see it: one Redis, which Sentinels may name, or the nodes of a cluster. Nobody above
// asks which.
package backend

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

// Backend is the process' way to ordinary commands' Redis. Its values can be compared.
type Backend interface {
	// Node is one that may be asked what any of them knows.
	Node() *upstream.Node
	// Authenticate asks Redis whether a user may log in. Passwords from one address take turns with those from others.
	Authenticate(ctx context.Context, from, user, password string) error
	// Renew has the connections of the identities concerned made again, and all nodes asked whether they want a password.
	Renew(concerned func(upstream.Identity) bool)
	// Tell has what is noticed on its connections told.
	Tell(Notices)
	// Final says that err, by which Redis does not let a user in again, is the last word on that.
	Final(err error) bool
	// NeedsCommands says that no command can be sent anywhere before Redis has told of its commands, and for how long one waits for that.
	NeedsCommands() (needed bool, wait time.Duration)
	// Misnamed warns of a Redis that is not what its address says. ask asks it as the service account.
	Misnamed(ask func(words ...string) ([]byte, error)) (warning string, err error)
	// Describe writes its lines of INFO.
	Describe(line func(name string, value any))
	// Members are the nodes that are known, masters first.
	Members() []Member
	// path is a client's way to it.
	path(*Forwarder) path
}

// Notices are what a backend tells of. They may come at any time, from any goroutine.
type Notices struct {
	Refused  func(upstream.Identity, *upstream.ReplyError) // Redis does not let an identity in any more
	Password func(asked bool)                              // whether it refuses clients that have not authenticated
	Topology func()                                        // other nodes, or other slots at them
}

// Member is one node of what is upstream.
type Member struct {
	*upstream.Node
	ID    string // of a cluster's node
	Addr  string // "": not known yet
	Role  string // master, or replica of a cluster
	Slots int    // of a cluster
}

// QuestionTime is how long the proxy's own questions to Redis may take.
const QuestionTime = 5 * time.Second
