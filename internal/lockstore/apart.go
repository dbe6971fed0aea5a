package lockstore

import "cmp"

// Apart has the locks of a store be on a Redis of their own, at that address, for all that they share with the data.
func Apart(at string, open Opener) Opener {
	return func(h Host) (Store, Rules) {
		s, rules := open(h)
		rules.At = at
		return apart{s, at}, rules
	}
}

// apart is a store whose Redises keep locks alone.
type apart struct {
	Store
	at string
}

// Able names each Redis: without a name it would be that of the data.
func (a apart) Able() (where []Ability, err error) {
	where, err = a.Store.Able()
	for i := range where {
		where[i].Node = cmp.Or(where[i].Node, a.at)
	}
	return where, err
}
