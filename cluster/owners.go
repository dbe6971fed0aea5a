package cluster

import (
	"iter"
	"slices"
)

// owners says which master has each slot. A slot has the place of its master in a list and no pointer, because a run
// of commands with keys of all slots looks at all of the table: that is 32 KiB so, and stays close to the processor.
type owners struct {
	at    [Slots]uint16 // the place of its master in nodes, from 1; 0: no node has the slot
	nodes []*Node
}

// Owner is the master that has a slot; nil when no node has it.
func (o *owners) Owner(slot int) *Node {
	if at := o.at[slot]; at > 0 {
		return o.nodes[at-1]
	}
	return nil
}

// give makes n the owner of a slot; nil: no node is.
func (o *owners) give(slot int, n *Node) {
	if n == nil {
		o.at[slot] = 0
		return
	}
	at := slices.Index(o.nodes, n)
	if at < 0 {
		at = len(o.nodes)
		o.nodes = append(o.nodes, n)
	}
	o.at[slot] = uint16(at + 1)
}

// firstOf is the first slot that a node has, -1 if it has none.
func (o *owners) firstOf(n *Node) int {
	for slot, has := range o.all() {
		if has == n {
			return slot
		}
	}
	return -1
}

// all are the slots with their owners.
func (o *owners) all() iter.Seq2[int, *Node] {
	return func(yield func(int, *Node) bool) {
		for slot := range Slots {
			if !yield(slot, o.Owner(slot)) {
				return
			}
		}
	}
}
