// Package chain is a list in the order in which its members came. Each member has a Link of its own for every chain that it may be in, so
// that adding and dropping one allocates nothing and takes the same short time however long the chain is.
package chain

import "iter"

// Link is a member's place in one chain. Its zero value is in none.
type Link[T any] struct {
	of         T
	prev, next *Link[T]
}

// Chain is the list. Its zero value is empty. Its owner's mutex guards it, and the links of its members.
type Chain[T any] struct {
	first, last *Link[T]
	members     int
}

// Add puts x at the end, unless it is a member already. Its link must be in no other chain.
func (c *Chain[T]) Add(at *Link[T], x T) {
	if at.prev != nil || c.first == at {
		return
	}
	at.of, at.prev = x, c.last
	if c.last == nil {
		c.first = at
	} else {
		c.last.next = at
	}
	c.last = at
	c.members++
}

// Drop takes off the member whose link this is. It has to be in this chain.
func (c *Chain[T]) Drop(at *Link[T]) {
	if at.prev == nil {
		c.first = at.next
	} else {
		at.prev.next = at.next
	}
	if at.next == nil {
		c.last = at.prev
	} else {
		at.next.prev = at.prev
	}
	*at = Link[T]{}
	c.members--
}

// Len is how many members there are.
func (c Chain[T]) Len() int { return c.members }

// All are the members, the first that came first. The one that is being visited may be dropped meanwhile.
func (c Chain[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for at := c.first; at != nil; {
			next := at.next
			if !yield(at.of) {
				return
			}
			at = next
		}
	}
}
