package world

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2/server"
)

// Cluster is some masters that share the slots evenly, without replicas: none takes another's place.
type Cluster struct {
	w     *World
	nodes []*Node

	// guarded by World.mu
	owner [slots]int // index into nodes
	epoch int
}

// NewCluster makes nodes with these addresses into a cluster.
func (w *World) NewCluster(addrs ...string) *Cluster {
	k := &Cluster{w: w, epoch: len(addrs)}
	for _, addr := range addrs {
		n := w.NewNode(addr)
		n.cluster = k
		k.nodes = append(k.nodes, n)
	}
	for slot := range k.owner {
		k.owner[slot] = slot * len(addrs) / slots
	}
	return k
}

// Nodes are the masters.
func (k *Cluster) Nodes() []*Node { return k.nodes }

// Owner is the node that has the slot of a key.
func (k *Cluster) Owner(key string) *Node {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	return k.nodes[k.owner[Slot(key)]]
}

// refuse is what a node says to a command for a slot that another node has; "": nothing. mu is held.
func (k *Cluster) refuse(n *Node, command []string, asked bool) string {
	slot := -1
	for _, key := range keysOf(command) {
		at := Slot(key)
		if slot >= 0 && slot != at {
			return "CROSSSLOT Keys in request don't hash to the same slot"
		}
		slot = at
	}
	if slot < 0 || k.nodes[k.owner[slot]] == n || asked {
		return ""
	}
	return fmt.Sprintf("MOVED %d %s", slot, k.nodes[k.owner[slot]].addr)
}

// ranges calls f for each range of slots of one node, in order. mu is held.
func (k *Cluster) ranges(f func(node, first, last int)) {
	first := 0
	for slot := 1; slot <= slots; slot++ {
		if slot == slots || k.owner[slot] != k.owner[first] {
			f(k.owner[first], first, slot-1)
			first = slot
		}
	}
}

// describe is the text of CLUSTER NODES. mu is held.
func (k *Cluster) describe(self *Node) string {
	own := make([][]string, len(k.nodes))
	k.ranges(func(node, first, last int) { own[node] = append(own[node], fmt.Sprintf("%d-%d", first, last)) })
	var b strings.Builder
	for i, n := range k.nodes {
		flags := "master"
		if n == self {
			flags = "myself,master"
		}
		fmt.Fprintf(&b, "%s %s@1 %s - 0 0 %d connected %s\n", n.id, n.addr, flags, i+1, strings.Join(own[i], " "))
	}
	return b.String()
}

func (k *Cluster) writeSlots(p *server.Peer) {
	p.Block(func(w *server.Writer) {
		count := 0
		k.ranges(func(int, int, int) { count++ })
		w.WriteLen(count)
		k.ranges(func(node, first, last int) {
			host, port, _ := net.SplitHostPort(k.nodes[node].addr)
			number, _ := strconv.Atoi(port)
			w.WriteLen(3)
			w.WriteInt(first)
			w.WriteInt(last)
			w.WriteLen(3)
			w.WriteBulk(host)
			w.WriteInt(number)
			w.WriteBulk(k.nodes[node].id)
		})
	})
}

func (k *Cluster) writeShards(p *server.Peer) {
	own := make([][]int, len(k.nodes))
	k.ranges(func(node, first, last int) { own[node] = append(own[node], first, last) })
	p.Block(func(w *server.Writer) {
		w.WriteLen(len(k.nodes))
		for i, n := range k.nodes {
			host, port, _ := net.SplitHostPort(n.addr)
			number, _ := strconv.Atoi(port)
			w.WriteMapLen(2)
			w.WriteBulk("slots")
			w.WriteLen(len(own[i]))
			for _, slot := range own[i] {
				w.WriteInt(slot)
			}
			w.WriteBulk("nodes")
			w.WriteLen(1)
			w.WriteMapLen(7)
			for _, word := range []string{"id", n.id, "endpoint", host, "ip", host, "role", "master", "health", "online"} {
				w.WriteBulk(word)
			}
			w.WriteBulk("port")
			w.WriteInt(number)
			w.WriteBulk("replication-offset")
			w.WriteInt(n.served)
		}
	})
}
