package commandtable

// The rows of the table, each with the note that docs/COMMANDS.md gives for it: a test checks that every row has one. What this
// proxy answers itself has its rows in package commands.

const (
	transaction    = "A transaction is state of the connection. Lock verbs, AUTH, HELLO, CLUSTER, READONLY, READWRITE, ASKING, CLIENT KILL, UNBLOCK and REPLY are errors within one, and abort it."
	subscription   = "Subscriptions are state of the connection. It is given back when the last one ends."
	mayWait        = "It may wait, and would make everybody else's commands wait."
	waitsWithBlock = "With BLOCK it may wait, and is sent on a connection of the client's own."
	lastWrite      = "It waits for all of the client's earlier writes, those on the shared connection, too. On Redis 7.2 and newer the proxy sends a write of its own for that, a FUNCTION RESTORE of no functions, as the client's user, or if that may not as the [service account](OPERATIONS.md#who-may-lock). In a transaction it is an error there."
	replication    = "It turns the connection into a replica's."
	kinOnly        = "Only relatives of Redis have it: it changes the connection."
	scripts        = "Other commands do not wait for it, other scripts may. It cannot change the connection."
	flushes        = "Locks are keys: they are lost, too, and their holders are told. Nobody else uses its connection: Redis 7.4 and newer may answer it from a thread, while they serve others."
	echoes         = "Its connection is shared with nobody: an error of it may look like several replies."
)

// Commands that would leave a shared connection in another state, answer with anything but one reply, block it or
// take it over run on a connection of the client's own, or are answered by package commands, or are refused: otherwise a reply
// could reach the wrong client.
var (
	stateful = []Command{
		{Name: "multi", Conn: ConnMulti, Note: transaction},
		{Name: "exec", Conn: ConnExec, Note: transaction},
		{Name: "discard", Conn: ConnDiscard, Note: transaction},
		{Name: "watch", Conn: ConnWatch, Note: "Watched keys are state of the connection."},
		{Name: "unwatch", Conn: ConnUnwatch, Note: "Watched keys are state of the connection."},
		{Name: "subscribe", Conn: ConnSubscribe, Note: subscription},
		{Name: "unsubscribe", Conn: ConnSubscribe, Note: subscription},
		{Name: "psubscribe", Conn: ConnSubscribe, Note: subscription},
		{Name: "punsubscribe", Conn: ConnSubscribe, Note: subscription},
		{Name: "ssubscribe", Conn: ConnSubscribe, Note: subscription},
		{Name: "sunsubscribe", Conn: ConnSubscribe, Note: subscription},
		{Name: "blpop", Conn: ConnBlock, Note: mayWait},
		{Name: "brpop", Conn: ConnBlock, Note: mayWait},
		{Name: "brpoplpush", Conn: ConnBlock, Note: mayWait},
		{Name: "blmove", Conn: ConnBlock, Note: mayWait},
		{Name: "blmpop", Conn: ConnBlock, Note: mayWait},
		{Name: "bzpopmin", Conn: ConnBlock, Note: mayWait},
		{Name: "bzpopmax", Conn: ConnBlock, Note: mayWait},
		{Name: "bzmpop", Conn: ConnBlock, Note: mayWait},
		{Name: "shutdown", Conn: ConnBlock, Note: "It ends Redis, not this proxy, which waits for it to come back. It may wait for replicas, and has a connection of the client's own, so that SHUTDOWN ABORT comes through."},
		{Name: "xread", Note: waitsWithBlock, variants: variants{waits: &Command{Name: "xread", Note: mayWait, Conn: ConnBlock, Learned: Learned{ReadOnly: true}}}},
		{Name: "xreadgroup", Note: waitsWithBlock, variants: variants{waits: &Command{Name: "xreadgroup", Note: mayWait, Conn: ConnBlock}}},
		{Name: "wait", Conn: ConnWait, Note: lastWrite},
		{Name: "waitaof", Conn: ConnWait, Note: lastWrite},
		{Name: "client|tracking", Conn: ConnTracking, Note: "Tracked keys are state of the connection. REDIRECT takes the CLIENT ID of a client of this proxy; a `tracking-redir-broken` push has Redis' number."},
	}

	// Refused unless --allow names them.
	optional = []Command{
		{Name: "monitor", Conn: ConnMonitor, Note: "It shows everybody's commands."},
		{Name: "debug", Conn: ConnAlone, Note: "It can stop or crash Redis."},
	}

	refused = []Command{
		{Name: "sync", Note: replication},
		{Name: "psync", Note: replication},
		{Name: "replconf", Note: "Of the replication protocol: REPLCONF ACK has no reply."},
		{Name: "cluster|syncslots", Note: "Only relatives of Redis have it: it takes the connection over."},
		{Name: "rreplay", Note: kinOnly},
		{Name: "dfly", Note: kinOnly},
		{Name: "script|debug", Note: "An interactive session with Redis' script debugger. Scripts that a client sends behind it are refused, not run without it."},
		{Name: "client|import-source", Note: kinOnly},
	}

	// Subcommands that go to Redis, of a command whose others do not.
	passed = []Command{
		{Name: "client|caching", Learned: Learned{ReadOnly: true}, Note: "Sent on the client's own connection while it is tracking."},
		{Name: "command|help", Learned: Learned{ReadOnly: true}, Note: "Redis' text, in its version."},
	}

	// What is forwarded although it concerns more than data, by command: what there is to know. Redis' ACL says who may.
	remarks = map[string]string{
		"acl":            "About Redis' users. ACL LOG shows this proxy's address.",
		"bgrewriteaof":   "",
		"bgsave":         "",
		"commandlog":     "About Redis, lock scripts included; the clients' addresses are this proxy's.",
		"config":         "About Redis, not this proxy. A changed requirepass holds for whoever comes then.",
		"dbsize":         "",
		"failover":       "The upstream becomes a replica, where Redis refuses writes and locks.",
		"function":       "",
		"keys":           "Locks are keys, so they are listed, too.",
		"lastsave":       "",
		"latency":        "About Redis. HISTOGRAM counts what this proxy sends, its lock scripts included.",
		"lolwut":         "",
		"memory":         "About Redis.",
		"module":         "A module's commands work as soon as it is loaded, by the flags it gives them. Each is sent on a connection that nobody else uses until it is answered, since it may be from a thread, while Redis serves others.",
		"object":         "",
		"pfdebug":        "",
		"pfselftest":     "",
		"publish":        "Before a cluster it counts the subscribers at one node, as a cluster's own nodes do.",
		"pubsub":         "About Redis. The channels on which the proxy waits for locks are listed, too.",
		"replicaof":      "The upstream becomes a replica, where Redis refuses writes and locks.",
		"restore-asking": "",
		"role":           "About Redis, which may be a replica.",
		"save":           "While it runs, Redis answers nobody.",
		"script":         "",
		"script|flush":   "Lock scripts are loaded again when needed.",
		"slaveof":        "See REPLICAOF.",
		"slowlog":        "About Redis, lock scripts included; the clients' addresses are this proxy's.",
		"spublish":       "",
		"swapdb":         "Locks are keys, so they change databases, too, and their holders lose them.",
	}
)

// scripted are the commands that run scripts and functions.
var scripted = []Command{
	{Name: "eval", Note: scripts, Script: true},
	{Name: "eval_ro", Note: scripts, Script: true},
	{Name: "evalsha", Note: scripts, Script: true},
	{Name: "evalsha_ro", Note: scripts, Script: true},
	{Name: "fcall", Note: scripts, Script: true},
	{Name: "fcall_ro", Note: scripts, Script: true},
}

// echoing are the commands whose errors Redis writes as they are: those of Lua's compiler, which shows what it does not understand, and of
// an unknown argument. It takes line ends out of all others.
var echoing = []Command{
	{Name: "function|list", Note: echoes, Echoes: true},
	{Name: "function|load", Note: echoes, Echoes: true},
	{Name: "function|restore", Note: echoes, Echoes: true},
}

// threaded are the commands of Redis' own that it may answer from a thread, though it does not flag them "blocking": of modules' commands
// each may be (see learnCommand). Nobody else's commands wait behind them on the same connection.
var threaded = []Command{
	{Name: "flushall", Note: flushes, Thread: true},
	{Name: "flushdb", Note: flushes, Thread: true},
	{Name: "sflush", Note: flushes, Thread: true},
}

// About is the note of c; of learned ones, which have none, the remark on it.
func (c *Command) About() string {
	if c.Note != "" {
		return c.Note
	}
	return remarks[c.Name]
}
