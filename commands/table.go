package commands

import (
	"strings"

	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/internal/commandtable"
	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// Answer answers one call of a command: it appends exactly one reply to out, or none if the client has been given it,
// wants none, or is closed. All replies to the client's earlier commands are in, and the call has the command's arity.
type Answer func(c *Client, args [][]byte, out []byte) []byte

// row is a command that lockproxy answers itself, and who answers it.
type row struct {
	name   string // lower case, "client|kill"
	answer Answer
	about  // what else is known of it; Name and Here are set for all rows
}

type about = commandtable.Command

// answered is every command that lockproxy answers itself, but for the lock verbs, which follow. The notes are for
// docs/COMMANDS.md.
func answered() []row {
	return []row{
		// Who the client is: identity.go.
		{"auth", auth, about{Arity: -2, Barred: true, Open: true, Note: "Redis decides."}},
		{"hello", hello, about{Arity: -1, Barred: true, Open: true, Note: "Redis' answer, with the connection's `id` here, `role` master, and `mode` standalone, or cluster with `--present cluster`."}},
		{"select", selectDB, about{Arity: 2, Note: "No difference."}},
		{"reset", reset, about{Arity: 1, Always: true, Open: true, Note: "It also releases the connection's locks."}},
		{"quit", quit, about{Always: true, Open: true, Note: "It also releases the connection's locks. Under CLIENT REPLY OFF it closes, too; Redis keeps that connection and reads it no more."}},
		{"post", speaksHTTP, about{Always: true, Open: true, Note: "Not a command: the start of an HTTP request. As Redis does, the client is closed."}},
		{"host:", speaksHTTP, about{Always: true, Open: true, Note: "Not a command: a line of an HTTP request. As Redis does, the client is closed."}},

		// What this proxy is in a cluster: clusternode.go.
		{"readonly", nodeMode, about{Arity: 1, Barred: true, Note: nodeOnly}},
		{"readwrite", nodeMode, about{Arity: 1, Barred: true, Note: nodeOnly}},
		{"asking", nodeMode, about{Arity: 1, Barred: true, Note: nodeOnly}},
		{"cluster", clusterCommand, about{Arity: -2, Barred: true, Note: nodeOnly}},
		{"cluster" + commandtable.AnySub, clusterCommand, about{Barred: true, Note: nodeOnly}},

		{"info", info, about{Open: true, Note: "Redis' answer, with a section `# Lockproxy` added, and without cluster mode unless `--present cluster`. Its `# Clients` are Redis' own clients; a few of them are connections of this proxy. With a cluster upstream, whole numbers about clients, memory, keys, commands and errors are the sums over all masters that answer; the rest, as means and fields for people, is one master's."}},
		{"script|kill", apart, about{Open: true, Note: "Redis' answer."}},
		{"function|kill", apart, about{Open: true, Note: "Redis' answer."}},

		// What a client says of itself: client.go.
		{"client", unknownSubcommand, about{Arity: -2, Open: true, Note: "Subcommands that are not listed here are unknown."}},
		{"client|id", clientID, about{Arity: 2, Probe: []string{"CLIENT", "ID"}, Note: "The connection's number at this proxy. Within a transaction it is Redis'."}},
		{"client|setname", clientSays, about{Arity: 3, Probe: []string{"CLIENT", "SETNAME", " "}, Note: "Redis is told of the name only on a connection of the client's own."}},
		{"client|getname", clientGetName, about{Arity: 2, Probe: []string{"CLIENT", "GETNAME"}, Note: "No difference."}},
		{"client|setinfo", clientSays, about{Arity: 4, Probe: []string{"CLIENT", "SETINFO", " ", " "}, Note: "As of Redis 7.2, whatever is upstream. A connection with a `lib-name` may come from a pool: see OWNERREQUIRED. `traceparent` is of lockproxy: see [Traces](OPERATIONS.md#traces)."}},
		{"client|capa", clientSays, about{Arity: -3, Note: "As of Valkey 8. The only capability known is `lock-lost`: the client takes the push of a lost lock."}},
		{"client|no-evict", clientSays, about{Arity: 3, Probe: []string{"CLIENT", "NO-EVICT", " "}, Note: "Only shown in CLIENT LIST, since Redis could evict only this proxy's connections."}},
		{"client|no-touch", clientSays, about{Arity: 3, Probe: []string{"CLIENT", "NO-TOUCH", " "}, Note: "Only shown in CLIENT LIST: keys that the client reads still count as used."}},
		{"client|reply", clientReply, about{Arity: 3, Barred: true, Probe: []string{"CLIENT", "REPLY", " "}, Note: "No difference."}},
		{"client|getredir", clientGetRedir, about{Arity: 2, Note: "Redis' answer, with this proxy's number."}},
		{"client|trackinginfo", clientTrackingInfo, about{Arity: 2, Note: "Redis' answer, with this proxy's number in `redirect`."}},
		{"client|help", clientHelp, about{Arity: 2, Note: "Redis' text, in its version, with CAPA added."}},

		// All clients: clients.go.
		{"client|info", clientInfo, about{Arity: 2, Probe: []string{"CLIENT", "INFO"}, Note: "See CLIENT LIST."}},
		{"client|list", clientList, about{Arity: -2, Note: "This proxy's clients in Redis' fields. Memory and buffers are 0, but for `qbuf` of the client that asks; flags `d`, `u`, `c` and `R` are not shown. The fields are those of this Redis' own CLIENT INFO; `lib-name` and `lib-ver` are also shown once given."}},
		{"client|kill", clientKill, about{Arity: -3, Barred: true, Note: "Among this proxy's clients, with all filters of Redis 7.4. Locks of a killed client are not released: they expire."}},
		{"client|pause", apart, about{Arity: -3, Note: "Redis is asked on a separate connection, and pauses all of its clients, those of other proxies as well. Meanwhile writes wait on the connection that they share, and reads go on, whoever has asked for the pause."}},
		{"client|unpause", apart, about{Arity: 2, Note: "No difference."}},
		{"client|unblock", clientUnblock, about{Arity: -3, Barred: true, Note: "Among this proxy's clients. It also ends the wait of a lock verb."}},

		// What commands there are: command.go. Redis is asked, and refuses those who have not authenticated; its answer
		// is only added to.
		{"command", commandAll, about{Open: true, Note: addedVerbs}},
		{"command|count", commandCount, about{Open: true, Note: addedVerbs}},
		{"command|info", commandInfo, about{Open: true, Note: addedVerbs}},
		{"command|docs", commandDocs, about{Open: true, Note: addedVerbs}},
		{"command|list", commandList, about{Open: true, Note: addedVerbs + " Of the filters they fit PATTERN only."}},
		{"command|getkeys", commandGetKeys, about{Open: true, Note: "Redis' answer; the proxy itself answers for lock verbs."}},
		{"command|getkeysandflags", commandGetKeys, about{Open: true, Note: "Redis' answer; the proxy itself answers for lock verbs."}},

		// What an operator asks: operator.go. Its subcommands are operatorCommands.
		{"lockproxy", unknownSubcommand, about{Arity: -2, Barred: true, Note: "Of lockproxy. All but HELP is for the users that `--operators` names: see [OPERATIONS.md](OPERATIONS.md#at-redis-cli)."}},
	}
}

const (
	nodeOnly   = "The answer is that of a Redis without cluster mode, whatever the upstream is; with `--present cluster`, that of a cluster's only node."
	addedVerbs = "Redis' answer with the lock verbs and LOCKPROXY added."
)

const since = "0.1.0"

// lockVerbs are the lock verbs. Their options are in verbs.go.
func lockVerbs() []*Verb {
	return []*Verb{
		{
			Name: "lock", Arity: -2, Flags: []string{"write", "noscript", "blocking"}, keys: oneKey, Group: "lock", Since: since,
			Summary: "Takes a lock, or enters it once more; nil when somebody else holds it, or with LIMIT so many others.",
			Options: []Option{optLimit, optBlock, optEX, optPX, optSelf, optLessee, optFence, optReplicas}, do: acquire(lock.Plain),
		},
		{
			Name: "fairlock", Arity: -2, Flags: []string{"write", "noscript", "blocking"}, keys: oneKey, Group: "lock", Since: since,
			Summary: "Takes a lock as LOCK does, but waits for it in a queue: first come, first served, across all proxies.",
			Options: []Option{optBlock, optEX, optPX, optSelf, optLessee, optFence, optReplicas}, do: acquire(lock.Plain),
		},
		{
			Name: "rlock", Arity: -2, Flags: []string{"write", "noscript", "blocking"}, keys: oneKey, Group: "lock", Since: since,
			Summary: "Takes a read lock, which other readers may hold too, or enters it once more; nil when somebody else writes.",
			Options: []Option{optBlock, optEX, optPX, optSelf, optLessee, optReplicas}, do: acquire(lock.Read),
		},
		{
			Name: "wlock", Arity: -2, Flags: []string{"write", "noscript", "blocking"}, keys: oneKey, Group: "lock", Since: since,
			Summary: "Takes a write lock, or enters it once more; nil when somebody else reads or writes.",
			Options: []Option{optBlock, optEX, optPX, optSelf, optLessee, optFence, optReplicas}, do: acquire(lock.Write),
		},
		{
			Name: "multilock", Arity: -3, Flags: []string{"write", "noscript", "blocking", "movablekeys"}, keys: countedKeys, Group: "lock", Since: since,
			Summary: "Takes several locks, all or none; nil when somebody else holds one of them.",
			Options: []Option{optBlock, optEX, optPX, optSelf, optLessee, optFence, optReplicas}, do: multilock,
		},
		{
			Name: "unlock", Arity: -2, Flags: []string{"write", "noscript"}, keys: oneKey, Group: "lock", Since: since,
			Summary: "Gives back one hold of a lock: 1 when it is now free of this owner, 0 when the owner still holds it.",
			Options: []Option{optRead, optWrite, optOwner, optAll, optForce}, do: unlock,
		},
		{
			Name: "multiunlock", Arity: -3, Flags: []string{"write", "noscript", "movablekeys"}, keys: countedKeys, Group: "lock", Since: since,
			Summary: "Gives back one hold of each of several locks: the number of those that are now free of this owner.",
			Options: []Option{optOwner}, do: multiunlock,
		},
		{
			Name: "renew", Arity: -2, Flags: []string{"write", "noscript"}, keys: oneKey, Group: "lock", Since: since,
			Summary: "Sets the lease of a lock that is held anew; without EX or PX the watchdog renews it from now on.",
			Options: []Option{optEX, optPX, optRead, optWrite, optLessee}, do: renew,
		},
		{
			Name: "fenced", Arity: -3, Flags: []string{"write", "noscript", "movablekeys"}, keys: oneKey, Wraps: true, Group: "lock", Since: since,
			Summary: "Runs a command only if this owner holds the lock, which Redis checks in the same atomic step.",
			Options: []Option{optRead, optWrite, optOwner}, do: fenced,
		},
		{
			Name: "lockinfo", Arity: 2, Flags: []string{"readonly", "noscript"}, keys: oneKey, Group: "lock", Since: since,
			Summary: "Tells who holds a lock, until when, and who waits.", do: lockinfo,
		},
		{
			Name: "locklist", Arity: -1, Flags: []string{"readonly", "noscript", "admin"}, Group: "lock", Since: since,
			Summary: "Lists the locks held and waited for through this proxy; with SCAN, step by step, those in Redis, whoever holds them.",
			Options: []Option{optAnyOwner, optScan, optMatch, optCount}, do: locklist,
		},
	}
}

// operatorCommands are the subcommands of LOCKPROXY, by name.
func operatorCommands() []*Subcommand {
	return []*Subcommand{
		{Name: "clients", takes: "[<count>]", Summary: "Lists clients, those with most locks first (100; -1: all): what each holds, and what it waits for.", do: operatorClients},
		{Name: "config", takes: "[<pattern>]", Summary: "Lists the settings in force, all or those whose names fit the pattern: the value, where it comes from (default, flag, environment, file), whether a reload may change it, and the value that waits for a restart. No password is shown.", do: operatorConfig},
		{Name: "drain", Summary: "Has this proxy drain and end, as SIGTERM does.", do: operatorDrain},
		{Name: "events", takes: "[<count>] [<pattern>] [<kind>]", Summary: "Lists what has happened, newest first (100; -1: all): to locks whose names match a pattern (*: everything), or of one kind.", do: operatorEvents},
		{Name: "help", Summary: "Prints this help.", open: true, do: operatorHelp},
		{Name: "locks", takes: "[<count>] [ALL]", Summary: "Lists the locks held through this proxy, or all proxies, those held longest first (100; -1: all).", do: operatorLocks},
		{Name: "loglevel", takes: "[DEBUG|INFO|WARN|ERROR]", Summary: "Tells the log's level, or sets it until the next reload or restart.", do: operatorLogLevel},
		{Name: "nodes", takes: "[<count>]", Summary: "Lists the Redis nodes that are known (100; -1: all), asks each whether it answers, and tells how those of a quorum are.", do: operatorNodes},
		{Name: "proxies", takes: "[<count>]", Summary: "Lists this proxy and the others before the same Redis (100; -1: all): where they are, how they are, and what is held and waited for there.", do: operatorProxies},
		{Name: "reload", Summary: "Has the settings, and files of certificates and passwords, read again, as SIGHUP does, and says what was taken, and what needs a restart; an error says what stays as it was, too.", do: operatorReload},
		{Name: "stats", Summary: "Tells what the section of INFO tells, and how old the oldest hold and the longest wait are.", do: operatorStats},
		{Name: "waiters", takes: "[<count>] [ALL]", Summary: "Lists who waits for a lock at this proxy, or all proxies, those who have waited longest first (100; -1: all).", do: operatorWaiters},
	}
}

var (
	verbs   = map[string]*Verb{}  // by name
	answers = map[string]Answer{} // of all rows, by name
)

func init() {
	for _, v := range lockVerbs() {
		verbs[v.Name] = v
		answers[v.Name] = v.answer
	}
	for _, s := range operatorCommands() {
		answers[s.fullName()] = s.answer
	}
	for _, r := range answered() {
		answers[r.name] = r.answer
	}
}

// Rows are the rows of what lockproxy answers itself, for a new commandtable.Table. A command comes before its
// subcommands.
func Rows() (all []*commandtable.Command) {
	for _, r := range answered() {
		r.Name, r.Here = r.name, true
		all = append(all, &r.about)
	}
	for _, s := range operatorCommands() {
		all = append(all, &about{Name: s.fullName(), Arity: s.arity(), Barred: true, Here: true, Note: s.Summary})
	}
	for _, v := range verbs {
		all = append(all, &about{Name: v.Name, Arity: v.Arity, Barred: true, Here: true, Note: v.Summary})
	}
	return all
}

// AnswerOf is who answers a command of a table with Rows that is answered here: the refusals, which the table makes,
// are said to be.
func AnswerOf(c *commandtable.Command) Answer {
	switch answer := answers[c.Name]; {
	case c.Name == "script|debug":
		return refuseDebug(c.Line)
	case c.Refusal:
		return refuse(c.Line)
	case answer != nil:
		return answer
	}
	command, _, _ := strings.Cut(c.Name, "|")
	return answers[command+commandtable.AnySub]
}

// refuse is a command that the table refuses.
func refuse(line string) Answer {
	return func(_ *Client, _ [][]byte, out []byte) []byte { return resp.AppendError(out, line) }
}

// refuseDebug is SCRIPT DEBUG YES|SYNC|NO. A client that was refused it may send its script all the same, as redis-cli
// --ldb does.
func refuseDebug(line string) Answer {
	return func(c *Client, args [][]byte, out []byte) []byte {
		if len(args) == 3 {
			switch {
			case same(args[2], "YES"), same(args[2], "SYNC"):
				c.Debugs = true
			case same(args[2], "NO"):
				c.Debugs = false
			}
		}
		return resp.AppendError(out, line)
	}
}

func unknownSubcommand(_ *Client, args [][]byte, out []byte) []byte {
	return resp.AppendError(out, "ERR unknown subcommand '"+Clip(args[1], ClipMost)+"'. Try "+strings.ToUpper(string(args[0]))+" HELP.")
}

// apart asks Redis on a connection of its own, where the call need not wait for others.
func apart(c *Client, args [][]byte, out []byte) []byte {
	reply, err := c.Access.Ask(backend.Apart(c.Forwarder.Routes.Load().Table.Find(args)), args...)
	return relay(c, reply, err, out)
}

// relay appends a reply Redis gave, or the error that stands for it.
func relay(c *Client, reply []byte, err error, out []byte) []byte {
	if err != nil {
		return c.Failed(out, err)
	}
	return append(out, reply...)
}
