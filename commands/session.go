package commands

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/inforce"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/proxies"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Client is who calls a command, with what an answer may ask on the caller's behalf. Answers read a call and write its
// reply.
type Client struct {
	*client.Client
	Session   Session
	Access    Access
	Forwarder *backend.Forwarder // asks Redis, as the client's own user
	Proxy     Proxy
	Operator  Operator
}

// Session is what changes who the client is, which replies it gets, or what is kept for it.
type Session interface {
	// Login has the client be another user, if Redis takes the password. user "" is Redis' default one.
	Login(user, password string) error
	// Greet does what HELLO asks for, and returns Redis' answer to it; Greeted notes that the client has been given
	// that.
	Greet(o HelloOptions) (resp.Reply, error)
	Greeted()
	// SelectDB has the client's commands go to another database from now on if Redis lets it: the reply is Redis'.
	SelectDB(n int) (reply []byte, err error)
	// Reset makes the connection as new, and releases its locks.
	Reset()
	// Rename gives the client a name; "": none.
	Rename(name string)
	// AskOwn asks about the client's own connection, and says where that one's invalidations go.
	AskOwn(args [][]byte) (reply []byte, to dedicated.Redirect, err error)

	// Locks is the client as the lock engine knows it.
	Locks() *lock.Client
	// Wait flushes the replies so far and runs run with a context that ends when the client goes away.
	Wait(run func(ctx context.Context))
	// Fenced runs a command if the lock is held as asked, and has its reply given. Only if there is none yet it returns
	// an error, which the verb is to answer.
	Fenced(r lock.HoldRequest, command [][]byte) error
}

// Access is what Redis lets the client's own user do.
type Access interface {
	// Admitted says why the client may not run commands before it has authenticated; nil: it may.
	Admitted() error
	// Ask asks by a call that changes nothing.
	Ask(at backend.Destination, args ...[]byte) (reply []byte, err error)
	// May asks whether the client may write, or read, all of the keys. The error is Redis' answer.
	May(write bool, keys ...[]byte) error
	// Refusals are what May would be for each key alone; none: the client may use all. The error is that Redis cannot be
	// asked.
	Refusals(write bool, keys ...[]byte) ([]error, error)
	// MayDelete asks whether the client may delete a key that it may write. The error is Redis' answer.
	MayDelete(key []byte) error
	// SeesClients asks whether the client may see who other clients are: may run CLIENT LIST.
	SeesClients() bool
	// Operates says that the client's user is one of the operators.
	Operates() bool
}

// Proxy is this proxy and all its clients.
type Proxy interface {
	// About is what the proxy is to its clients.
	About() *ProxyFacts
	// Client are the facts of the client with that number, Clients those of all.
	Client(number int64) ClientFacts
	Clients() []ClientFacts
	// Holders are n at most of the clients that Has a part, those first that hold most locks, then those that have waited
	// longest, and how many have it.
	Holders(n int, part string) (some []ClientHolds, of int)
	// Fields are those of Redis' own CLIENT INFO; nil: not known. LearnFields notes them.
	Fields() ClientFields
	LearnFields(f ClientFields)
	// ProxyOf is the host of another proxy whose connection that owner is; "": it is none, or that is not known. none:
	// there is no proxy whose it is.
	ProxyOf(owner string) (at string, none bool)
	// Kill closes the clients that are meant, but for the one with the number by, whose locks run out then. itself:
	// that one is meant, too.
	Kill(f KillFilter, by int64, who string) (killed int, itself bool)
	// Unblock ends a client's wait, as if its time were over, or by an error: that of a lock verb here, that of another
	// command by a call of Redis', whose reply is the reply.
	Unblock(number int64, fails bool, by Access) (reply []byte, err error)
}

// Operator is what operators ask of the process; by says who asks.
type Operator interface {
	// Nodes are those that commands go to, n at most, each asked whether it answers.
	Nodes(ctx context.Context, n int) []NodeFacts
	// InForce are the settings that hold, how the last reload went, and how far a drain is.
	InForce() inforce.State
	// LogLevel sets the log's level until the next reload, unless to is "", and returns the one that holds.
	LogLevel(by *client.Client, to string) (now string, err error)
	// Proxies is what this proxy and the others answer.
	Proxies(ctx context.Context, q proxies.Question) proxies.Overview
	// Reload has the settings read again, as SIGHUP does, and says what was taken on and what needs a restart. The
	// error says what stays as it was, and what was taken on nevertheless.
	Reload(by *client.Client) (said string, err error)
	// Drain has the process drain and end, as SIGTERM does.
	Drain(by *client.Client)
}

// askRedis asks any node, by a call that changes nothing.
func (c *Client) askRedis(args ...[]byte) ([]byte, error) {
	return c.Access.Ask(backend.Destination{}, args...)
}

// proto is the client's protocol, 2 or 3.
func (c *Client) proto() int { return c.Identity().Proto }

// ClientHolds is one client of this proxy and what it has of locks.
type ClientHolds struct {
	ClientFacts
	Locks    int
	WaitsFor string // a lock; "": it waits for none
	Waited   time.Duration
}

// NodeFacts is one node that commands go to.
type NodeFacts struct {
	backend.Member
	Trouble error         // why it serves nobody; nil: it answers
	Took    time.Duration // to say so
}

// bytesOf are words as a call has them.
func bytesOf(words ...string) [][]byte {
	all := make([][]byte, len(words))
	for i, w := range words {
		all[i] = []byte(w)
	}
	return all
}
