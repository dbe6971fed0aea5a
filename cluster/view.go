package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net"
	"slices"
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
	epoch  int64 // config epoch of the node's master part; 0: not known
}

var errNoTopology = errors.New("the node has no view of a cluster")

// readView reads the replies of CLUSTER SHARDS, CLUSTER SLOTS and CLUSTER NODES. SHARDS or SLOTS may be an error,
// and NODES, which adds the config epochs. SHARDS tells more of each node; SLOTS tells who has a slot: where the
// former master is in a shard still, SHARDS of Redis 8.2 leaves the shard's slots out. asked is the host that was
// asked, which stands for every host left empty; secure wants the ports of TLS.
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
	if !slices.ContainsFunc(v.nodes, func(n described) bool { return n.master && !n.failed }) {
		return nil, errNoTopology
	}
	return v, nil
}

// addShard reads one element of CLUSTER SHARDS.
func (v *view) addShard(shard resp.Reply, asked string, secure bool) {
	master, first := int16(-1), len(v.nodes)
	for _, n := range field(shard, "nodes").Elems {
		port := text(n, "port")
		if secure {
			port = cmp.Or(text(n, "tls-port"), port)
		}
		d := describe(text(n, "id"), text(n, "endpoint"), port, asked)
		d.call(n, port)
		d.master = text(n, "role") == "master"
		d.failed = strings.HasPrefix(text(n, "health"), "fail")
		at := v.add(d)
		if d.master && (master < 0 || !d.failed) { // after a failover a shard shows its old master, too, for as long as that is gone
			master = at
		}
	}
	if master >= 0 {
		for i := range v.nodes[first:] {
			if d := &v.nodes[first+i]; !d.master {
				d.of = v.nodes[master].id
			}
		}
	}
	for pair := range slices.Chunk(field(shard, "slots").Elems, 2) {
		v.give(pair, master)
	}
}

// addRange reads one element of CLUSTER SLOTS: from, to, master, replicas.
func (v *view) addRange(row resp.Reply, asked string) {
	if len(row.Elems) < 3 {
		return
	}
	slots, nodes := row.Elems[:2], row.Elems[2:]
	of := "" // the master's id, if the row has it
	for i, n := range nodes {
		if len(n.Elems) < 3 {
			continue
		}
		host, port, id := string(n.Elems[0].Text), string(n.Elems[1].Text), string(n.Elems[2].Text)
		at := v.find(id)
		if at < 0 {
			d := describe(id, host, port, asked)
			d.master, d.of = i == 0, of
			if len(n.Elems) > 3 {
				d.call(n.Elems[3], port)
			}
			at = v.add(d)
		}
		if i == 0 {
			of = id
			v.give(slots, at)
		}
	}
}

// add adds a node, and returns its index.
func (v *view) add(d described) int16 {
	v.nodes = append(v.nodes, d)
	return int16(len(v.nodes) - 1)
}

// give gives a node the slots from the first to the last of a pair.
func (v *view) give(slots []resp.Reply, node int16) {
	if len(slots) < 2 {
		return
	}
	first, last, ok := slotRange(string(slots[0].Text), string(slots[1].Text))
	if !ok {
		return
	}
	for s := first; s <= last; s++ {
		v.owner[s] = node
	}
}

func (v *view) find(id string) int16 {
	return int16(slices.IndexFunc(v.nodes, func(d described) bool { return d.id == id }))
}

// addNodes reads config epochs, and who has failed, from CLUSTER NODES.
func (v *view) addNodes(text string) {
	for l := range nodeLines(text) {
		if at := v.find(l.id); at >= 0 {
			d := &v.nodes[at]
			d.epoch, d.of, d.failed = l.epoch, l.of, d.failed || l.is("fail")
		}
	}
}

// describe begins a node's description. An empty host, or "?", stands for the host that was asked.
func describe(id, endpoint, port, asked string) described {
	addr := net.JoinHostPort(cmp.Or(known(endpoint), asked), port)
	return described{id: id, addr: addr, names: []string{addr}}
}

// call adds what else the node is called, as a map that describes it says.
func (d *described) call(in resp.Reply, port string) {
	d.name = known(text(in, "hostname"))
	for _, host := range []string{d.name, known(text(in, "ip"))} {
		if host != "" {
			d.names = append(d.names, net.JoinHostPort(host, port))
		}
	}
}

// known is host, or "" for Redis' ways to say that it does not know one.
func known(host string) string {
	if host == "?" {
		return ""
	}
	return host
}

// field finds what stands after a name in a map, or in an array that stands for one.
func field(r resp.Reply, name string) resp.Reply {
	for i := 0; i+1 < len(r.Elems); i += 2 {
		if string(r.Elems[i].Text) == name {
			return r.Elems[i+1]
		}
	}
	return resp.Reply{}
}

// text is what stands after a name, as text.
func text(r resp.Reply, name string) string { return string(field(r, name).Text) }

// slotRange reads the first and the last of some slots.
func slotRange(from, to string) (first, last int, ok bool) {
	first, err1 := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	return first, last, errors.Join(err1, err2) == nil && areSlots(first, last)
}

// nodeLine is a line of CLUSTER NODES.
type nodeLine struct {
	id    string
	flags []string
	of    string // the id of its master, "" of a master
	epoch int64
}

func (l nodeLine) is(flag string) bool { return slices.Contains(l.flags, flag) }

// nodeLines takes CLUSTER NODES apart.
func nodeLines(text string) iter.Seq[nodeLine] {
	return func(yield func(nodeLine) bool) {
		for line := range strings.Lines(text) {
			f := strings.Fields(line)
			if len(f) < 8 {
				continue
			}
			l := nodeLine{id: f[0], flags: strings.Split(f[2], ","), of: strings.TrimPrefix(f[3], "-")}
			l.epoch, _ = strconv.ParseInt(f[6], 10, 64)
			if !yield(l) {
				return
			}
		}
	}
}
