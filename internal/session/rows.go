package session

// The rows of the table, each with the note that docs/COMMANDS.md gives for it: a test wants one of every row.

const (
	transaction  = "A transaction is state of the connection. Lock verbs, AUTH, HELLO, CLIENT KILL, UNBLOCK and REPLY are errors within one, and abort it."
	subscription = "Subscriptions are state of the connection. It is given back when the last one ends."
	mayWait      = "It may wait, and would hold up everybody else's commands."
	waitsIfTold  = "With BLOCK it may wait, and is sent on a connection of the client's own."
	lastWrite    = "Redis counts what the command's own connection wrote last. A WAIT of this proxy's own goes ahead of it, so that all writes before count, those on the shared connection too."
	replication  = "It turns the connection into a replica's."
	kinOnly      = "Redis' kin only: it changes the connection."
	scripts      = "It never waits with, or holds up, ordinary commands: a script that is not known to be quick has a connection alone. It cannot change the connection. A NOSCRIPT is healed if the body has come by."
	functions    = "It never waits with, or holds up, ordinary commands: a function that is not known to be quick has a connection alone. It cannot change the connection."
	nodeOnly     = "As a Redis that is no cluster, in whose place lockproxy stands, whatever is upstream."
	addedVerbs   = "Redis' answer with the lock verbs added."
)

// Commands that would leave a shared connection in another state, answer with anything but one reply, block it or
// take it over run on a connection of the client's own, or are answered here, or are refused: a shifted or foreign
// reply would reach the wrong client.
var (
	stateful = []command{
		{name: "multi", pin: pinMulti, note: transaction},
		{name: "exec", pin: pinExec, note: transaction},
		{name: "discard", pin: pinDiscard, note: transaction},
		{name: "watch", pin: pinWatch, note: "Watched keys are state of the connection."},
		{name: "unwatch", pin: pinUnwatch, note: "Watched keys are state of the connection."},
		{name: "subscribe", pin: pinSubscribe, note: subscription},
		{name: "unsubscribe", pin: pinSubscribe, note: subscription},
		{name: "psubscribe", pin: pinSubscribe, note: subscription},
		{name: "punsubscribe", pin: pinSubscribe, note: subscription},
		{name: "ssubscribe", pin: pinSubscribe, note: subscription},
		{name: "sunsubscribe", pin: pinSubscribe, note: subscription},
		{name: "blpop", pin: pinBlock, note: mayWait},
		{name: "brpop", pin: pinBlock, note: mayWait},
		{name: "brpoplpush", pin: pinBlock, note: mayWait},
		{name: "blmove", pin: pinBlock, note: mayWait},
		{name: "blmpop", pin: pinBlock, note: mayWait},
		{name: "bzpopmin", pin: pinBlock, note: mayWait},
		{name: "bzpopmax", pin: pinBlock, note: mayWait},
		{name: "bzmpop", pin: pinBlock, note: mayWait},
		{name: "xread", note: waitsIfTold, waits: &command{name: "xread", note: mayWait, pin: pinBlock, readOnly: true}},
		{name: "xreadgroup", note: waitsIfTold, waits: &command{name: "xreadgroup", note: mayWait, pin: pinBlock}},
		{name: "wait", pin: pinWait, note: lastWrite},
		{name: "waitaof", pin: pinWait, note: lastWrite},
		{name: "client|tracking", pin: pinTracking, note: "Tracked keys are state of the connection. REDIRECT takes the CLIENT ID of a client of this proxy; a `tracking-redir-broken` push has Redis' number."},
	}

	// Refused unless --allow names them.
	optional = []command{
		{name: "monitor", pin: pinMonitor, note: "It shows everybody's commands."},
		{name: "debug", pin: pinAlone, note: "It can stop or crash Redis."},
	}

	refused = []command{
		{name: "sync", note: replication},
		{name: "psync", note: replication},
		{name: "replconf", note: "Of the replication protocol: REPLCONF ACK has no reply."},
		{name: "cluster|syncslots", note: "Redis' kin only: it takes the connection over."},
		{name: "rreplay", note: kinOnly},
		{name: "dfly", note: kinOnly},
		{name: "script|debug", note: "An interactive session with Redis' script debugger."},
		{name: "client|import-source", note: kinOnly},
	}

	answered = []command{
		{name: "auth", barred: true, arity: -2, open: true, run: (*Session).auth, note: "Redis decides, on another connection."},
		{name: "hello", barred: true, arity: -1, open: true, run: (*Session).hello,
			note: "Redis' answer, with the connection's `id` here, `mode` standalone and `role` master."},
		{name: "select", arity: 2, run: (*Session).selectDB, note: "The client goes on on that database's shared connection. No difference."},
		{name: "reset", always: true, arity: 1, open: true, run: (*Session).reset, note: "It also releases the connection's locks."},
		{name: "quit", always: true, open: true, run: (*Session).quit, note: "It also releases the connection's locks."},
		{name: "post", always: true, open: true, run: (*Session).crossProtocol, note: "Not a command: the start of an HTTP request. As Redis does, the client is closed."},
		{name: "host:", always: true, open: true, run: (*Session).crossProtocol, note: "Not a command: a line of an HTTP request. As Redis does, the client is closed."},
		{name: "readonly", arity: 1, run: (*Session).noCluster, note: nodeOnly},
		{name: "readwrite", arity: 1, run: (*Session).noCluster, note: nodeOnly},
		{name: "asking", arity: 1, run: (*Session).noCluster, note: nodeOnly},
		{name: "cluster", arity: -2, run: (*Session).cluster, note: nodeOnly},
		{name: "script|kill", open: true, run: (*Session).apart, note: "Redis', asked on another connection: the one that runs the script does not listen."},
		{name: "function|kill", open: true, run: (*Session).apart, note: "Redis', asked on another connection: the one that runs the function does not listen."},
		{name: "info", open: true, run: (*Session).info, note: "Redis' answer, with a section `# Lockproxy` added, and not of a cluster's node. Its `# Clients` are Redis' own clients, of which this proxy is a few."},
		{name: "client", arity: -2, open: true, run: unknownSubcommand, note: "Subcommands that are not listed here are unknown."},
		{name: "client|id", arity: 2, run: (*Session).clientID, probe: []string{"CLIENT", "ID"},
			note: "The connection's number at this proxy. Within a transaction it is Redis'."},
		{name: "client|setname", arity: 3, run: (*Session).clientSetName, probe: []string{"CLIENT", "SETNAME", " "},
			note: "The name is kept here, and given to the client's own connection when it has one."},
		{name: "client|getname", arity: 2, run: (*Session).clientGetName, probe: []string{"CLIENT", "GETNAME"}, note: "No difference."},
		{name: "client|setinfo", arity: 4, run: (*Session).clientSetInfo, probe: []string{"CLIENT", "SETINFO", " ", " "},
			note: "As of Redis 7.2, whatever is upstream. A connection with a `lib-name` may come from a pool: see OWNERREQUIRED."},
		{name: "client|capa", arity: -3, run: (*Session).clientCapa,
			note: "As of Valkey 8. The only capability known is `lock-lost`: the client takes the push of a lost lock."},
		{name: "client|info", arity: 2, run: (*Session).clientInfo, probe: []string{"CLIENT", "INFO"}, note: "See CLIENT LIST."},
		{name: "client|list", arity: -2, run: (*Session).clientList,
			note: "This proxy's clients in Redis' fields. Memory and buffers are 0, but for `qbuf` of the client that asks; flags `d`, `u`, `c` and `R` are not shown, `lib-name` and `lib-ver` once given."},
		{name: "client|kill", arity: -3, barred: true, run: (*Session).clientKill,
			note: "Among this proxy's clients, with all filters of Redis 7.4. Locks of a killed client are not released: they run out."},
		{name: "client|pause", arity: -3, run: (*Session).clientPause, note: "Redis is asked on a connection apart, and pauses all of its clients, of whatever proxy. While it pauses writes, each client here has a connection of its own."},
		{name: "client|unpause", arity: 2, run: (*Session).clientUnpause, note: "Redis is asked on a connection apart, which nothing holds up."},
		{name: "client|unblock", arity: -3, barred: true, run: (*Session).clientUnblock, note: "Among this proxy's clients. It also ends the wait of a lock verb."},
		{name: "client|reply", arity: 3, barred: true, run: (*Session).clientReply, probe: []string{"CLIENT", "REPLY", " "},
			note: "The replies are kept back here. No difference."},
		{name: "client|no-evict", arity: 3, run: (*Session).clientNoEvict, probe: []string{"CLIENT", "NO-EVICT", " "},
			note: "Only shown in CLIENT LIST: it is this proxy's connections that Redis might evict."},
		{name: "client|no-touch", arity: 3, run: (*Session).clientNoTouch, probe: []string{"CLIENT", "NO-TOUCH", " "},
			note: "Only shown in CLIENT LIST: what the client reads counts as used."},
		{name: "client|getredir", arity: 2, run: (*Session).clientGetRedir, note: "Redis' answer, the number being this proxy's."},
		{name: "client|trackinginfo", arity: 2, run: (*Session).clientTrackingInfo, note: "Redis' answer, the number in `redirect` being this proxy's."},
		{name: "client|help", arity: 2, run: (*Session).clientHelp, note: "Redis' text, in its version, with CAPA added."},
		// Redis itself refuses the unauthenticated here: what it answers is only added to.
		{name: "command", open: true, run: (*Session).commandAll, note: addedVerbs},
		{name: "command|count", open: true, run: (*Session).commandCount, note: addedVerbs},
		{name: "command|info", open: true, run: (*Session).commandInfo, note: addedVerbs},
		{name: "command|docs", open: true, run: (*Session).commandDocs, note: addedVerbs},
		{name: "command|list", open: true, run: (*Session).commandList, note: addedVerbs + " Of the filters they fit PATTERN only."},
		{name: "command|getkeys", open: true, run: (*Session).commandGetKeys, note: "Redis' answer; of a lock verb, the keys are told here."},
		{name: "command|getkeysandflags", open: true, run: (*Session).commandGetKeys, note: "Redis' answer; of a lock verb, the keys are told here."},
	}

	// Subcommands that go to Redis, of a command whose others do not.
	passed = []command{
		{name: "client|caching", readOnly: true, note: "To the client's own connection while it is tracking, where it means something."},
		{name: "command|help", readOnly: true, note: "Redis' text, in its version."},
	}

	// What is forwarded although it concerns more than data, by command: what there is to know. Redis' ACL says who may.
	remarks = map[string]string{
		"acl":            "Of Redis' users. ACL LOG shows this proxy's address.",
		"bgrewriteaof":   "",
		"bgsave":         "",
		"config":         "Of Redis, not of this proxy. A changed requirepass holds here within seconds.",
		"dbsize":         "",
		"failover":       "The upstream becomes a replica, where Redis refuses writes and locks.",
		"flushall":       "Locks are keys: they are gone, too, and their holders are told.",
		"flushdb":        "Locks are keys: they are gone, too, and their holders are told.",
		"function":       "",
		"keys":           "Locks are keys, and seen.",
		"lastsave":       "",
		"latency":        "Of Redis. HISTOGRAM counts what this proxy sends, its lock scripts included.",
		"lolwut":         "",
		"memory":         "Of Redis.",
		"module":         "A module's commands work as soon as it is loaded, by the flags it gives them.",
		"object":         "",
		"pfdebug":        "",
		"pfselftest":     "",
		"publish":        "",
		"pubsub":         "Of Redis: the channels lock waiters listen on are among them.",
		"replicaof":      "The upstream becomes a replica, where Redis refuses writes and locks.",
		"restore-asking": "",
		"role":           "Of Redis, which may be a replica.",
		"save":           "While it runs, Redis answers nobody.",
		"script":         "",
		"shutdown":       "It ends Redis, not this proxy, which waits for it to come back.",
		"slaveof":        "See REPLICAOF.",
		"slowlog":        "Of Redis, lock scripts included; the clients' addresses are this proxy's.",
		"spublish":       "",
		"swapdb":         "Locks are keys: they change places, too, and their holders lose them.",
	}
)
