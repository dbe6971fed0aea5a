package commands

import (
	"cmp"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/backend"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// To its clients the proxy is a Redis alone, whatever is upstream, or, with ProxyFacts.Node, the only node of a
// cluster: clients that know clusters then find all slots here.

// noCluster is Redis' answer to what only a cluster's node would take.
const noCluster = "ERR This instance has cluster support disabled"

// nodeMode answers READONLY, READWRITE and ASKING: every slot is here and writable, so that nothing changes by them.
func nodeMode(c *Client, _ [][]byte, out []byte) []byte {
	if !c.Proxy.About().Node {
		return resp.AppendError(out, noCluster)
	}
	return appendOK(out)
}

// clusterCommand is CLUSTER. It never asks Redis but for a slot's keys: that may be a cluster's node and would give
// away the others' addresses, or reset itself.
func clusterCommand(c *Client, args [][]byte, out []byte) []byte {
	if !c.Proxy.About().Node {
		return withoutCluster(c, args, out)
	}
	n, err := clusterNodeAt(cmp.Or(c.Proxy.About().Announce, c.Peer.LocalAddr))
	if err != nil {
		return c.Failed(out, err)
	}
	out, ok := n.Answer(out, c.proto(), args[1:])
	if !ok {
		return askSlot(c, args, out)
	}
	return out
}

// withoutCluster is CLUSTER of a Redis alone.
func withoutCluster(c *Client, args [][]byte, out []byte) []byte {
	whole := c.Forwarder.Routes.Load().Table.Lookup([]byte("cluster"))
	if whole == nil || len(whole.Subs) < 2 || whole.Of(args) != whole { // Redis did not list any, or this one
		return resp.AppendError(out, noCluster)
	}
	return unknownSubcommand(c, args, out)
}

// askSlot asks the node that has a slot.
func askSlot(c *Client, args [][]byte, out []byte) []byte {
	slot, ok := resp.Integer(args[2])
	if !ok || slot < 0 || slot >= cluster.Slots {
		return resp.AppendError(out, "ERR Invalid slot")
	}
	reply, err := c.Access.Ask(backend.AtSlot(int(slot)), args...)
	return relay(c, reply, err, out)
}

// clusterNodeAt is the proxy at the address where clients are told to find it.
func clusterNodeAt(addr string) (n clusterNode, err error) {
	host, digits, err := net.SplitHostPort(addr)
	if err == nil {
		n.Host = host
		n.Port, err = strconv.Atoi(digits)
	}
	if err != nil {
		return n, errors.New("this proxy's address is not known here: set --announce-address")
	}
	return n, nil
}

// clusterNode is a proxy as the only node of a cluster: what clients that know clusters are told of it.
type clusterNode struct {
	Host string
	Port int
}

// Answer appends CLUSTER's reply, of which args is the subcommand and what follows it. false: it is about the keys of a
// slot, which Redis must be asked.
func (n clusterNode) Answer(out []byte, proto int, args [][]byte) ([]byte, bool) {
	id := n.id()
	switch sub := strings.ToUpper(string(args[0])); {
	case sub == "MYID" || sub == "MYSHARDID":
		return resp.AppendBulkString(out, id), true
	case sub == "SLOTS":
		return appendValue(out, proto, list{list{0, cluster.Slots - 1, list{n.Host, n.Port, id, list{}}}}), true
	case sub == "SHARDS":
		return appendValue(out, proto, list{n.shard()}), true
	case sub == "NODES":
		return resp.AppendVerbatim(out, proto, "txt",
			fmt.Sprintf("%s %s:%d@%d myself,master - 0 0 1 connected 0-%d\n", id, n.Host, n.Port, n.Port,
				cluster.Slots-1)), true
	case sub == "INFO":
		return resp.AppendVerbatim(out, proto, "txt",
			"cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\ncluster_slots_pfail:0\r\n"+
				"cluster_slots_fail:0\r\ncluster_known_nodes:1\r\ncluster_size:1\r\ncluster_current_epoch:1\r\ncluster_my_epoch:1\r\n"), true
	case sub == "REPLICAS" || sub == "SLAVES" || sub == "LINKS":
		return resp.AppendArray(out, 0), true
	case sub == "KEYSLOT" && len(args) == 2:
		return resp.AppendInt(out, int64(cluster.Slot(args[1]))), true
	case sub == "COUNTKEYSINSLOT" && len(args) == 2 || sub == "GETKEYSINSLOT" && len(args) == 3:
		return out, false
	}
	return resp.AppendError(out, "ERR CLUSTER "+Clip(args[0], ClipMost)+
		" is not available: lockproxy stands for the cluster's nodes"), true
}

// shard is that of all slots.
func (n clusterNode) shard() fields {
	node := fields{{"id", n.id()}, {"port", n.Port}, {"ip", n.Host}, {"endpoint", n.Host}, {"role", "master"},
		{"replication-offset", 0}, {"health", "online"}}
	return fields{{"slots", list{0, cluster.Slots - 1}}, {"nodes", list{node}}}
}

// id is the same for all proxies behind one address.
func (n clusterNode) id() string {
	sum := sha1.Sum([]byte("lockproxy " + net.JoinHostPort(n.Host, strconv.Itoa(n.Port))))
	return hex.EncodeToString(sum[:])
}
