package backend

import (
	"sync"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/commandtable"
)

// Routes is a command table, and what a cluster needs to know of its commands, which is made when the first is asked for.
type Routes struct {
	Table *commandtable.Table
	noted sync.Once
	facts map[*commandtable.Command]*cluster.Facts
}

// of returns the facts of c, which may be nil; nil: nothing is known of the command.
func (r *Routes) of(c *commandtable.Command) *cluster.Facts {
	if c == nil {
		return nil
	}
	r.noted.Do(func() {
		r.facts = make(map[*commandtable.Command]*cluster.Facts)
		r.Table.All(func(c *commandtable.Command) { r.facts[c] = factsOf(c) })
	})
	if facts, known := r.facts[c]; known {
		return facts
	}
	return factsOf(c)
}

func factsOf(c *commandtable.Command) *cluster.Facts {
	if c.Spec == nil {
		return nil
	}
	return cluster.FactsOf(c.Name, c.Spec.Flags, c.Spec.Tips)
}

// AtAllNodes says that a command without keys concerns all nodes.
func (r *Routes) AtAllNodes(c *commandtable.Command) bool {
	f := r.of(c)
	return f != nil && (c.Clustered.How != commandtable.ClusteredSent || f.Request != cluster.OneNode || f.Name == "scan")
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
