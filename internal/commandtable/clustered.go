package commandtable

import "slices"

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

// clustered are the commands of which there is something to say, in the order of the page.
var clustered = []struct {
	names []string
	Clustered
}{
	{[]string{"monitor"}, Clustered{ClusteredRefused, "ERR 'MONITOR' is of one node: lockproxy does not send it to a cluster", "refused"}},
	{[]string{"shutdown"}, Clustered{ClusteredRefused, "ERR 'SHUTDOWN' is of one node: lockproxy does not send it to a cluster", "refused"}},
	{[]string{"client|tracking"}, Clustered{ClusteredRefused, "ERR CLIENT TRACKING is not available with a cluster upstream: lockproxy does not track keys over several nodes", "refused, but for `OFF`"}},
	{[]string{"select"}, Clustered{ClusteredSent, "ERR SELECT is not allowed in cluster mode", "database 0 only"}},
	{[]string{"wait", "waitaof"}, Clustered{How: ClusteredWaits, Note: "for all masters; the smallest answer counts"}},
	{[]string{"pubsub|channels", "pubsub|shardchannels"}, Clustered{How: ClusteredUnion, Note: "those of all nodes"}},
	{[]string{"function|stats"}, Clustered{How: ClusteredRunning, Note: "of a master that runs a script, or any"}},
}

// ClusteredOf is what becomes of a command before a cluster.
func ClusteredOf(name string) Clustered {
	for _, row := range clustered {
		if slices.Contains(row.names, name) {
			return row.Clustered
		}
	}
	return Clustered{}
}
