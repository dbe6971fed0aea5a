package commands

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// ClusterNode is a proxy as the only node of a cluster: what clients that know clusters are told of it.
type ClusterNode struct {
	Host string
	Port int
}

// Answer appends CLUSTER's reply, of which args is the subcommand and what follows it. false: it is about the keys of a slot,
// which Redis must be asked.
func (n ClusterNode) Answer(out []byte, proto int, args [][]byte) ([]byte, bool) {
	id, port := n.id(), int64(n.Port)
	switch sub := strings.ToUpper(string(args[0])); {
	case sub == "MYID" || sub == "MYSHARDID":
		return resp.AppendBulkString(out, id), true
	case sub == "SLOTS":
		out = resp.AppendInt(resp.AppendInt(resp.AppendArray(resp.AppendArray(out, 1), 3), 0), cluster.Slots-1)
		out = resp.AppendInt(resp.AppendBulkString(resp.AppendArray(out, 4), n.Host), port)
		return resp.AppendArray(resp.AppendBulkString(out, id), 0), true
	case sub == "SHARDS":
		return n.appendShard(out, proto), true
	case sub == "NODES":
		return resp.AppendVerbatim(out, proto, "txt", fmt.Sprintf("%s %s:%d@%d myself,master - 0 0 1 connected 0-%d\n", id, n.Host, port, port, cluster.Slots-1)), true
	case sub == "INFO":
		return resp.AppendVerbatim(out, proto, "txt", "cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\ncluster_slots_pfail:0\r\n"+
			"cluster_slots_fail:0\r\ncluster_known_nodes:1\r\ncluster_size:1\r\ncluster_current_epoch:1\r\ncluster_my_epoch:1\r\n"), true
	case sub == "REPLICAS" || sub == "SLAVES" || sub == "LINKS":
		return resp.AppendArray(out, 0), true
	case sub == "KEYSLOT" && len(args) == 2:
		return resp.AppendInt(out, int64(cluster.Slot(args[1]))), true
	case sub == "COUNTKEYSINSLOT" && len(args) == 2 || sub == "GETKEYSINSLOT" && len(args) == 3:
		return out, false
	}
	return resp.AppendError(out, "ERR CLUSTER "+Clip(args[0])+" is not available: lockproxy stands for the cluster's nodes"), true
}

func (n ClusterNode) appendShard(out []byte, proto int) []byte {
	text := func(name, value string) { out = resp.AppendBulkString(resp.AppendBulkString(out, name), value) }
	out = resp.AppendMap(resp.AppendArray(out, 1), proto, 2)
	out = resp.AppendArray(resp.AppendBulkString(out, "slots"), 2)
	out = resp.AppendInt(resp.AppendInt(out, 0), cluster.Slots-1)
	out = resp.AppendArray(resp.AppendBulkString(out, "nodes"), 1)
	out = resp.AppendMap(out, proto, 7)
	text("id", n.id())
	out = resp.AppendInt(resp.AppendBulkString(out, "port"), int64(n.Port))
	text("ip", n.Host)
	text("endpoint", n.Host)
	text("role", "master")
	out = resp.AppendInt(resp.AppendBulkString(out, "replication-offset"), 0)
	text("health", "online")
	return out
}

// id is the same for all proxies behind one address.
func (n ClusterNode) id() string {
	sum := sha1.Sum([]byte("lockproxy " + net.JoinHostPort(n.Host, strconv.Itoa(n.Port))))
	return hex.EncodeToString(sum[:])
}
