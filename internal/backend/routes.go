package backend

import (
	"sync"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
)

// Routes is what a cluster needs to know of a table's commands. The routes are made when the first is asked for.
type Routes struct {
	Table *commandtable.Table
	noted sync.Once
	all   map[*commandtable.Command]*route
}

// route is what a cluster needs to know of a command.
type route struct {
	facts   *cluster.Facts
	instead insteadOfNode // nil: it is forwarded, or answered as with one Redis
}

func newRoute(c *commandtable.Command) *route {
	r := &route{}
	if c.Spec != nil {
		r.facts = cluster.FactsOf(c.Name, c.Spec.Flags, c.Spec.Tips)
	}
	if !c.Refusal {
		r.instead = insteadOf(commandtable.ClusteredOf(c.Name).How)
	}
	return r
}

var noRoute route

// of returns the route of c, which is nil when nothing is known of the command.
func (r *Routes) of(c *commandtable.Command) *route {
	if c == nil {
		return &noRoute
	}
	r.noted.Do(func() {
		r.all = make(map[*commandtable.Command]*route)
		r.Table.All(func(c *commandtable.Command) { r.all[c] = newRoute(c) })
	})
	if known := r.all[c]; known != nil {
		return known
	}
	return newRoute(c)
}

// AtAllNodes says that a command without keys concerns all nodes.
func (r *Routes) AtAllNodes(c *commandtable.Command) bool {
	route := r.of(c)
	f := route.facts
	return f != nil && (route.instead != nil || f.Request != cluster.OneNode || f.Name == "scan")
}

// KeysOf finds which words of a call are keys, and appends them to dst. Where only Redis can tell, it is asked.
func (f *Forwarder) KeysOf(c *commandtable.Command, words [][]byte, dst []int) []int {
	if c == nil || c.Spec == nil {
		return dst
	}
	keys, known := c.Spec.Keys(words, dst)
	if known {
		return keys
	}
	reply, err := f.Ask(append([][]byte{[]byte("COMMAND"), []byte("GETKEYS")}, words...), Destination{})
	if err != nil {
		return dst
	}
	return commandtable.Named(reply, words, dst)
}

// NoSlot is the slot of what has no keys.
const NoSlot = -1

// SlotOf is the slot of a call's keys, NoSlot when it has none. cross: they are in several.
func (f *Forwarder) SlotOf(c *commandtable.Command, words [][]byte) (slot int, cross bool) {
	slot = NoSlot
	for _, k := range f.KeysOf(c, words, nil) {
		of := cluster.Slot(words[k])
		if slot != NoSlot && of != slot {
			return slot, true
		}
		slot = of
	}
	return slot, false
}
