package commandtable

// Clustered is what becomes of a command before a cluster where it is not sent to the nodes that its keys, or Redis' tips,
// name.
type Clustered struct {
	How    ClusteredHow // outside of transactions
	Line   string       // the error, of what is refused
	ButOff bool         // a call with OFF as its only option is answered OK: what it switches off is never on
	Barred bool         // an error within a transaction, which may be at another node
	Note   string       // for docs/CLUSTER.md
}

// ClusteredHow is what is done in place of sending a command to a node.
type ClusteredHow uint8

const (
	ClusteredSent    ClusteredHow = iota // nothing
	ClusteredRefused                     // it has no sense there
	ClusteredUnion                       // it is asked of all nodes, and each thing is told once
	ClusteredRunning                     // it is asked of all masters, and the answer of one that runs a script is told
)

// clustered are the commands of which there is something to say.
var clustered = map[string]Clustered{
	"monitor":              {How: ClusteredRefused, Line: "ERR 'MONITOR' is of one node: lockproxy does not send it to a cluster", Barred: true, Note: "refused"},
	"shutdown":             {How: ClusteredRefused, Line: "ERR 'SHUTDOWN' is of one node: lockproxy does not send it to a cluster", Note: "refused"},
	"client|tracking":      {How: ClusteredRefused, Line: "ERR CLIENT TRACKING is not available with a cluster upstream: lockproxy does not track keys over several nodes", ButOff: true, Barred: true, Note: "refused, but for `OFF` outside of transactions"},
	"select":               {Line: "ERR SELECT is not allowed in cluster mode", Note: "database 0 only"},
	"subscribe":            clusteredSubscribe,
	"unsubscribe":          clusteredSubscribe,
	"psubscribe":           clusteredSubscribe,
	"punsubscribe":         clusteredSubscribe,
	"ssubscribe":           clusteredSubscribe,
	"sunsubscribe":         clusteredSubscribe,
	"pubsub|channels":      {How: ClusteredUnion, Note: "those of all nodes"},
	"pubsub|shardchannels": {How: ClusteredUnion, Note: "those of all nodes"},
	"function|stats":       {How: ClusteredRunning, Note: "of a master that runs a script, or any"},
}

var clusteredSubscribe = Clustered{Barred: true, Note: "refused in a transaction"}

// ClusteredOf is what becomes of a command before a cluster.
func ClusteredOf(name string) Clustered { return clustered[name] }

// The errors before a cluster for what a command is called with, or when, whichever it is.
const (
	CrossSlot        = "CROSSSLOT Keys in request don't hash to the same slot" // as a node says it
	CrossWatch       = "ERR %s on a connection that watches another node's keys: use another connection, or UNWATCH first"
	FencedCrossSlot  = CrossSlot + ": what FENCED runs must have its keys in the lock's own slot; give both the same hash tag, as in {order:7}:lock and {order:7}:stock"
	FencedAtAllNodes = "ERR '%s' cannot be run by FENCED on a cluster: it concerns all nodes, and FENCED runs at that of the lock"
)

// clusteredCalls are the calls that those errors are for.
var clusteredCalls = []struct{ call, line string }{
	{"keys in several slots, but for what is split, or in a transaction and under `WATCH`", CrossSlot},
	{"what may wait, beside a `WATCH` at another node", CrossWatch},
	{"`FENCED` of keys in another slot than the lock's", FencedCrossSlot},
	{"`FENCED` of what concerns all nodes (`SCAN` …)", FencedAtAllNodes},
}
