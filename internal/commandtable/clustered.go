package commandtable

// Clustered is what becomes of a command before a cluster, outside of transactions, where it is not sent to the nodes that
// its keys, or Redis' tips, name.
type Clustered struct {
	How  ClusteredHow
	Line string // the error, of what is refused
	Note string // for docs/CLUSTER.md
}

// ClusteredHow is what is done in place of sending a command to a node.
type ClusteredHow uint8

const (
	ClusteredSent    ClusteredHow = iota // nothing
	ClusteredRefused                     // it has no sense there
	ClusteredWaits                       // it waits at all masters
	ClusteredUnion                       // it is asked of all nodes, and each thing is told once
	ClusteredRunning                     // it is asked of all masters, and the answer of one that runs a script is told
)

// clustered are the commands of which there is something to say.
var clustered = map[string]Clustered{
	"monitor":              {ClusteredRefused, "ERR 'MONITOR' is of one node: lockproxy does not send it to a cluster", "refused"},
	"shutdown":             {ClusteredRefused, "ERR 'SHUTDOWN' is of one node: lockproxy does not send it to a cluster", "refused"},
	"client|tracking":      {ClusteredRefused, "ERR CLIENT TRACKING is not available with a cluster upstream: lockproxy does not track keys over several nodes", "refused, but for `OFF`"},
	"select":               {ClusteredSent, "ERR SELECT is not allowed in cluster mode", "database 0 only"},
	"wait":                 {How: ClusteredWaits, Note: "for all masters; the smallest answer counts"},
	"waitaof":              {How: ClusteredWaits, Note: "as `WAIT`"},
	"pubsub|channels":      {How: ClusteredUnion, Note: "those of all nodes"},
	"pubsub|shardchannels": {How: ClusteredUnion, Note: "those of all nodes"},
	"function|stats":       {How: ClusteredRunning, Note: "of a master that runs a script, or any"},
}

// ClusteredOf is what becomes of a command before a cluster.
func ClusteredOf(name string) Clustered { return clustered[name] }
