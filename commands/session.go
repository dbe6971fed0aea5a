package commands

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/client"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/dedicated"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/slowlog"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Client is the connection that a command is answered for: the session implements it. Answers read a call and write its reply; what is
// so of the client, and changes, they ask of it.
type Client interface {
	Identity
	Locker
	Redis
	Connection
	Settings
	Neighbours
	Operation
}

// Identity is who the client is.
type Identity interface {
	ID() int64  // of the connection, at this proxy
	Proto() int // 2 or 3
	DB() int
	// Login has the client be another user, if Redis takes the password. user "" is Redis' default one.
	Login(user, password string) error
	// Greet does what HELLO asks for, and returns Redis' answer to it.
	Greet(o HelloOptions) (resp.Reply, error)
	// SelectDB has the client's commands go to another database from now on if Redis lets it: the reply is Redis'.
	SelectDB(n int) (reply []byte, err error)
	// Reset makes the connection as new, and releases its locks.
	Reset()
	// Proxy is what the proxy is to its clients.
	Proxy() *ProxyFacts
}

// Locker is what the lock verbs need.
type Locker interface {
	// BeginVerb says why the client may not run commands before it has authenticated; nil: it may.
	BeginVerb() error
	Locks() *lock.Client
	// May asks Redis whether this client's own user may write, or read, all of the keys. The error is Redis' answer.
	May(write bool, keys ...[]byte) error
	// MayDelete asks Redis whether this client's own user may delete a key that it may write. The error is Redis' answer.
	MayDelete(key []byte) error
	// SeesClients asks Redis whether this client's own user may see who other clients are: may run CLIENT LIST.
	SeesClients() bool
	// Traced has the spans that begin in the ctx it returns be below the one that the client has named with its traceparent.
	Traced(ctx context.Context) context.Context
	// Wait flushes the replies so far and runs run with a context that ends when the client goes away.
	Wait(run func(ctx context.Context))
	// Fenced runs a command if the lock is held as asked, and has its reply given. Only if there is none yet it returns an
	// error, which the verb is to answer.
	Fenced(r lock.HoldRequest, command [][]byte) error
}

// Redis is the user's Redis, which is asked as the client's own user.
type Redis interface {
	// Admitted says why the client may not run commands before it has authenticated; nil: it may.
	Admitted() error
	// Ask asks any node, by a call that changes nothing.
	Ask(args ...[]byte) (reply []byte, err error)
	// AskSlot asks the node of a cluster that has the slot.
	AskSlot(slot int, args [][]byte) (reply []byte, err error)
	// AskAll asks all nodes that have keys: at least one reply.
	AskAll(args [][]byte) ([]resp.Reply, error)
	// AskApart asks on a connection of its own, where the call need not wait for others.
	AskApart(args [][]byte) (reply []byte, err error)
	// AskOwn asks about the client's own connection, and says where that one's invalidations go.
	AskOwn(args [][]byte) (reply []byte, to dedicated.Redirect, err error)
	// Commands are those that are known.
	Commands() *commandtable.Table
}

// Connection is the client's connection to this proxy.
type Connection interface {
	// Address is where clients are told to find this proxy, "host:port".
	Address() string
	// Fail appends the error that stands for the reply, or closes the client, which then gets none.
	Fail(out []byte, err error) []byte
	// MayHold says whether so many bytes may be held for the client besides the replies given so far. If not, it is dropped.
	MayHold(n int) bool
	// Give gives the client a reply before the answer has ended.
	Give(reply []byte)
	// Flush writes the replies given so far.
	Flush()
	// Quit ends the connection as if the client had: its locks are released.
	Quit()
	// HangUp closes the client: its locks run out.
	HangUp(why string)
	// Distrust closes a client that speaks HTTP.
	Distrust()
}

// Settings are what a client says of itself and of its connection.
type Settings interface {
	Name() string
	Rename(name string) // "": none
	Set(t client.Setting)
	SetReplyMode(m ReplyMode)
	// ReadReplicas says whether what the client reads may come from replicas. false: that is not the client's to say.
	ReadReplicas(may bool) bool
	// Greeted notes that the client has been given the reply that says which protocol it speaks.
	Greeted()
	// Debugs notes that the client believes that its scripts are run in Redis' debugger, or does so no longer.
	Debugs(on bool)
}

// Neighbours are all clients of this proxy.
type Neighbours interface {
	// Facts are this client's; args is the call that asks.
	Facts(args [][]byte) ClientFacts
	// Clients are the facts of all; args is the call that asks.
	Clients(args [][]byte) []ClientFacts
	// Fields are those of Redis' own CLIENT INFO; nil: not known.
	Fields() ClientFields
	// ProxyOf is where another proxy is found whose connection that owner is; "": it is none, or that is not known.
	ProxyOf(owner string) string
	// LearnFields notes them.
	LearnFields(f ClientFields)
	// Kill closes the clients that are meant, but for this one, whose locks run out then. itself: this one is meant, too.
	Kill(f KillFilter) (killed int, itself bool)
	// Unblock ends a client's wait, as if its time were over, or by an error: that of a lock verb here, that of another command by a call
	// of Redis', whose reply is the reply.
	Unblock(id int64, fails bool) (reply []byte, err error)
	// PauseWrites notes that Redis has all clients' writes wait.
	PauseWrites(d time.Duration)
	// ResumeWrites notes that it does so no longer.
	ResumeWrites()
}

// Operation is the proxy as an operator sees it.
type Operation interface {
	// Operates says that the client's user is one of the operators.
	Operates() bool
	// Holders are the clients, those first that hold most locks, then those that have waited longest: n at most.
	Holders(n int) []ClientHolds
	// Nodes are those that commands go to, n at most, each asked whether it answers.
	Nodes(n int) []NodeFacts
	// Slow are the last commands that took long.
	Slow() *slowlog.Log
	// Pause holds back what clients send, or only what may write, for that long; it replaces the pause there is.
	Pause(d time.Duration, writes bool)
	// Resume ends the pause.
	Resume()
	// Reload has the settings read again, as SIGHUP does, and says what was taken on and what needs a restart. The error says what stays as
	// it was, and what was taken on nevertheless.
	Reload() (said string, err error)
	// Drain has the process drain and end, as SIGTERM does.
	Drain()
}

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

// ReplyMode is which replies a client wants.
type ReplyMode int

// The modes of CLIENT REPLY.
const (
	RepliesOn ReplyMode = iota
	RepliesOff
	RepliesSkip // not that of the next command
)

// bytesOf are words as a call has them.
func bytesOf(words ...string) [][]byte {
	all := make([][]byte, len(words))
	for i, w := range words {
		all[i] = []byte(w)
	}
	return all
}
