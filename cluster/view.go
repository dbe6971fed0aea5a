package cluster

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/proto/resp"
)

// view is a cluster as one node describes it.
type view struct {
	nodes []described
	owner [Slots]int16 // index into nodes; -1: no node has the slot
}

// claimed returns for how many slots the view has an owner, failed or not.
func (v *view) claimed() int {
	n := 0
	for _, at := range v.owner {
		if at >= 0 {
			n++
		}
	}
	return n
}

// described is a node as another, or it itself, describes it.
type described struct {
	id     string
	addr   string   // host:port that clients are to use, before the address map
	name   string   // its host name, "" when it has none
	names  []string // all host:port a redirect may call it by
	of     string   // the id of its master; "" of a master, and when it is not known
	master bool
	failed bool
	loads  bool  // it has no data of its master's yet
	epoch  int64 // config epoch of the node's master part; 0: not known
}

var errNoTopology = errors.New("the node has no view of a cluster")

// readView reads the replies of CLUSTER SHARDS, CLUSTER SLOTS and CLUSTER NODES. SHARDS or SLOTS may be an error, and NODES, which adds the
// config epochs. SHARDS tells more of each node; SLOTS tells who has a slot: where the former master is in a shard still, SHARDS of Redis 8.2
// leaves the shard's slots out. asked is the host that was asked, which stands for every host left empty; secure wants the ports of TLS.
func readView(shards, slots, nodes resp.Reply, asked string, secure bool) (*view, error) {
	v := &view{}
	for i := range v.owner {
		v.owner[i] = -1
	}
	for _, shard := range shards.Elems {
		v.addShard(shard, asked, secure)
	}
	for _, row := range slots.Elems {
		v.addRange(row, asked)
	}
	if len(v.nodes) == 0 && isError(slots) {
		return nil, fmt.Errorf("%w: %s", errNoTopology, slots.Text)
	}
	v.addNodes(string(nodes.Text))
	for _, n := range v.nodes {
		if n.master && !n.failed {
			return v, nil
		}
	}
	return nil, errNoTopology
}

// addShard reads one element of CLUSTER SHARDS.
func (v *view) addShard(shard resp.Reply, asked string, secure bool) {
	master, first := int16(-1), len(v.nodes)
	for _, n := range field(shard, "nodes").Elems {
		port := text(n, "port")
		if tls := field(n, "tls-port").Text; secure && len(tls) > 0 {
			port = string(tls)
		}
		d := describe(text(n, "id"), text(n, "endpoint"), port, asked)
		d.name = known(text(n, "hostname"))
		d.call(d.name, port)
		d.call(text(n, "ip"), port)
		d.master = text(n, "role") == "master"
		d.failed = strings.HasPrefix(text(n, "health"), "fail")
		d.loads = text(n, "health") == "loading"
		// After a failover a shard shows its old master, too, for as long as that is gone.
		if d.master && (!d.failed || master < 0) {
			master = int16(len(v.nodes))
		}
		v.nodes = append(v.nodes, d)
	}
	for i := first; i < len(v.nodes) && master >= 0; i++ {
		if !v.nodes[i].master {
			v.nodes[i].of = v.nodes[master].id
		}
	}
	ranges := field(shard, "slots").Elems
	for i := 0; i+1 < len(ranges); i += 2 {
		v.give(ranges[i], ranges[i+1], master)
	}
}

// addRange reads one element of CLUSTER SLOTS: from, to, master, replicas.
func (v *view) addRange(row resp.Reply, asked string) {
	if len(row.Elems) < 3 {
		return
	}
	master := "" // its id, if the row has it
	for i, n := range row.Elems[2:] {
		if len(n.Elems) < 3 {
			continue
		}
		if i == 0 {
			master = string(n.Elems[2].Text)
		}
		at := v.find(string(n.Elems[2].Text))
		if at < 0 {
			port := string(n.Elems[1].Text)
			d := describe(string(n.Elems[2].Text), string(n.Elems[0].Text), port, asked)
			if d.master = i == 0; !d.master {
				d.of = master
			}
			if len(n.Elems) > 3 {
				d.name = known(text(n.Elems[3], "hostname"))
				d.call(d.name, port)
				d.call(text(n.Elems[3], "ip"), port)
			}
			at = int16(len(v.nodes))
			v.nodes = append(v.nodes, d)
		}
		if i == 0 {
			v.give(row.Elems[0], row.Elems[1], at)
		}
	}
}

func (v *view) give(from, to resp.Reply, node int16) {
	first, ok1 := integerOf(from)
	last, ok2 := integerOf(to)
	if !ok1 || !ok2 || !areSlots(first, last) {
		return
	}
	for s := first; s <= last; s++ {
		v.owner[s] = node
	}
}

func (v *view) find(id string) int16 {
	for i := range v.nodes {
		if v.nodes[i].id == id {
			return int16(i)
		}
	}
	return -1
}

// addNodes reads config epochs, and who has failed, from CLUSTER NODES.
func (v *view) addNodes(text string) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		if at := v.find(f[0]); at >= 0 {
			v.nodes[at].epoch, _ = strconv.ParseInt(f[6], 10, 64)
			v.nodes[at].of = strings.TrimPrefix(f[3], "-")
			for flag := range strings.SplitSeq(f[2], ",") {
				v.nodes[at].failed = v.nodes[at].failed || flag == "fail"
			}
		}
	}
}

// describe begins a node's description. An empty host, or "?", stands for the host that was asked.
func describe(id, endpoint, port, asked string) described {
	d := described{id: id}
	if endpoint = known(endpoint); endpoint == "" {
		endpoint = asked
	}
	d.addr = net.JoinHostPort(endpoint, port)
	d.names = []string{d.addr}
	return d
}

func (d *described) call(host, port string) {
	if host = known(host); host != "" {
		d.names = append(d.names, net.JoinHostPort(host, port))
	}
}

// known is host, or "" for Redis' ways to say that it does not know one.
func known(host string) string {
	if host == "?" {
		return ""
	}
	return host
}

// selfDescription is what a node says about itself in CLUSTER NODES.
type selfDescription struct {
	epoch  int64
	master bool
	has    [Slots]bool
	moving map[int]string // slots being migrated away, and the id of the node they go to
}

// readSelfDescription finds the line of CLUSTER NODES with the flag "myself". False: there is none, or it names slots that no cluster has.
func readSelfDescription(text string) (*selfDescription, bool) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 || !strings.Contains(","+f[2]+",", ",myself,") {
			continue
		}
		o := &selfDescription{moving: map[int]string{}, master: strings.Contains(f[2], "master")}
		o.epoch, _ = strconv.ParseInt(f[6], 10, 64)
		for _, word := range f[8:] {
			if to, found := strings.CutPrefix(word, "["); found {
				if slot, id, out := strings.Cut(strings.TrimSuffix(to, "]"), "->-"); out {
					n, err := strconv.Atoi(slot)
					if err != nil || n < 0 || n >= Slots {
						return nil, false
					}
					o.moving[n] = id
				}
				continue
			}
			from, to, many := strings.Cut(word, "-")
			first, err1 := strconv.Atoi(from)
			last, err2 := first, error(nil)
			if many {
				last, err2 = strconv.Atoi(to)
			}
			if err1 != nil || err2 != nil || !areSlots(first, last) {
				return nil, false
			}
			for s := first; s <= last; s++ {
				o.has[s] = true
			}
		}
		return o, true
	}
	return nil, false
}
