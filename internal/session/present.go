package session

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// To its clients the proxy is a Redis alone, whatever is upstream, or, with Options.Present, the only node of a cluster:
// clients that know clusters then find all slots here.

// mode is what HELLO and INFO call that.
func (s *Server) mode() string {
	if s.o.Present {
		return "cluster"
	}
	return "standalone"
}

var modes = [2][2][]byte{ // alone and as a node
	{[]byte("redis_mode:standalone"), []byte("cluster_enabled:0")},
	{[]byte("redis_mode:cluster"), []byte("cluster_enabled:1")},
}

// misplaced says that an INFO tells of another mode than the proxy's.
func (s *Server) misplaced(text []byte) bool {
	wrong := modes[1]
	if s.o.Present {
		wrong = modes[0]
	}
	return bytes.Contains(text, wrong[0]) || bytes.Contains(text, wrong[1])
}

// placed has INFO say what CLUSTER and HELLO say.
func (s *Server) placed(text []byte) []byte {
	from, to := modes[1], modes[0]
	if s.o.Present {
		from, to = to, from
	}
	for i := range from {
		text = bytes.Replace(text, from[i], to[i], 1)
	}
	return text
}

// noCluster is Redis' answer to what only a cluster's node would take.
func (s *Session) noCluster([][]byte) { s.error("ERR This instance has cluster support disabled") }

// clusterSwitch is READONLY, READWRITE and ASKING: every slot is here and writable, so that nothing changes by them but,
// where replicas may be read from, whether this client's reads go there.
func (s *Session) clusterSwitch(args [][]byte) {
	if s.srv.mayReadReplicas() && !equalFold(args[0], "asking") {
		s.pipes.replicas = equalFold(args[0], "readonly")
		s.ok()
		return
	}
	if !s.srv.o.Present {
		s.noCluster(args)
		return
	}
	s.ok()
}

// cluster answers CLUSTER with a subcommand Redis did not list. It never asks Redis, which may be a cluster's node and
// would give away the others' addresses, or reset itself.
func (s *Session) cluster(args [][]byte) {
	if s.srv.o.Present {
		s.clusterNode(args)
		return
	}
	c := s.srv.facts.table.Load().Lookup([]byte("cluster"))
	if c == nil || c.Subs == nil || len(c.Subs) < 2 { // it did not list any
		s.noCluster(args)
		return
	}
	unknownSubcommand(s, args)
}

// clusterNode is CLUSTER of the only node of a cluster.
func (s *Session) clusterNode(args [][]byte) {
	if !s.srv.o.Present {
		s.noCluster(args)
		return
	}
	host, port, err := s.announced()
	if err != nil {
		s.fail(err)
		return
	}
	id := nodeID(host, port)
	out, proto := s.batch.out, s.ident.Proto
	switch sub := strings.ToUpper(string(args[1])); {
	case sub == "MYID" || sub == "MYSHARDID":
		out = resp.AppendBulkString(out, id)
	case sub == "SLOTS":
		out = resp.AppendInt(resp.AppendInt(resp.AppendArray(resp.AppendArray(out, 1), 3), 0), cluster.Slots-1)
		out = resp.AppendInt(resp.AppendBulkString(resp.AppendArray(out, 4), host), int64(port))
		out = resp.AppendArray(resp.AppendBulkString(out, id), 0)
	case sub == "SHARDS":
		out = s.appendShard(out, id, host, port)
	case sub == "NODES":
		out = resp.AppendVerbatim(out, proto, "txt", fmt.Sprintf("%s %s:%d@%d myself,master - 0 0 1 connected 0-%d\n", id, host, port, port, cluster.Slots-1))
	case sub == "INFO":
		out = resp.AppendVerbatim(out, proto, "txt", "cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\ncluster_slots_pfail:0\r\n"+
			"cluster_slots_fail:0\r\ncluster_known_nodes:1\r\ncluster_size:1\r\ncluster_current_epoch:1\r\ncluster_my_epoch:1\r\n")
	case sub == "REPLICAS" || sub == "SLAVES" || sub == "LINKS":
		out = resp.AppendArray(out, 0)
	case sub == "KEYSLOT" && len(args) == 3:
		out = resp.AppendInt(out, int64(cluster.Slot(args[2])))
	case (sub == "COUNTKEYSINSLOT" && len(args) == 3 || sub == "GETKEYSINSLOT" && len(args) == 4):
		s.askSlot(args)
		return
	default:
		out = resp.AppendError(out, "ERR CLUSTER "+clip(args[1])+" is not available: lockproxy stands for the cluster's nodes")
	}
	s.batch.out = out
}

func (s *Session) appendShard(out []byte, id, host string, port int) []byte {
	proto := s.ident.Proto
	text := func(name, value string) { out = resp.AppendBulkString(resp.AppendBulkString(out, name), value) }
	out = resp.AppendMap(resp.AppendArray(out, 1), proto, 2)
	out = resp.AppendArray(resp.AppendBulkString(out, "slots"), 2)
	out = resp.AppendInt(resp.AppendInt(out, 0), cluster.Slots-1)
	out = resp.AppendArray(resp.AppendBulkString(out, "nodes"), 1)
	out = resp.AppendMap(out, proto, 7)
	text("id", id)
	out = resp.AppendInt(resp.AppendBulkString(out, "port"), int64(port))
	text("ip", host)
	text("endpoint", host)
	text("role", "master")
	out = resp.AppendInt(resp.AppendBulkString(out, "replication-offset"), 0)
	text("health", "online")
	return out
}

// askSlot asks the node that has a slot.
func (s *Session) askSlot(args [][]byte) {
	slot, ok := integer(args[2])
	if !ok || slot < 0 || slot >= cluster.Slots {
		s.error("ERR Invalid slot")
		return
	}
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = string(a)
	}
	var n *cluster.Node
	if c := s.srv.o.Cluster; c != nil {
		n = c.Snapshot().Owner(int(slot))
	}
	s.relay(s.askWhere(n, words...))
}

// announced is where clients are told to find this proxy: by default where this one has.
func (s *Session) announced() (host string, port int, err error) {
	addr := s.srv.o.Announce
	if addr == "" {
		addr = s.peer.laddr
	}
	host, digits, err := net.SplitHostPort(addr)
	if err == nil {
		port, err = strconv.Atoi(digits)
	}
	if err != nil {
		return "", 0, fmt.Errorf("this proxy's address is not known here: set --announce-address")
	}
	return host, port, nil
}

// nodeID is the same for all proxies behind one address.
func nodeID(host string, port int) string {
	sum := sha1.Sum([]byte("lockproxy " + net.JoinHostPort(host, strconv.Itoa(port))))
	return hex.EncodeToString(sum[:])
}
