package history

import (
	"fmt"
	"sort"
)

// The token oracle: the fencing tokens of one key rise from grant to grant, and none comes twice, except when one owner asks twice at
// once: the nodes of a quorum may propose the same to both.

// Tokens finds grants of one key whose token is not higher than that of a grant which was over before they were asked for.
func Tokens(key string, ops []*Op) (wrong []Violation) {
	type grant struct {
		*Op
		token int64
	}
	var grants []grant
	for _, o := range ops {
		if !o.Acquires() || !o.Fence || o.Outcome != OK {
			continue
		}
		token := o.N
		for i, k := range o.Keys {
			if k == key && i < len(o.Tokens) {
				token = o.Tokens[i]
			}
		}
		grants = append(grants, grant{o, token})
	}
	blame := func(a, b grant, what string) {
		wrong = append(wrong, Violation{Oracle: "tokens", Key: key, Ops: []*Op{a.Op, b.Op}, Text: fmt.Sprintf("token %d, then %d: %s", a.token, b.token, what)})
	}
	over := append([]grant(nil), grants...)
	sort.Slice(over, func(i, j int) bool { return over[i].Return < over[j].Return })
	seen := map[int64]grant{}
	var highest grant
	for _, g := range grants { // by their calls
		for len(over) > 0 && over[0].Return < g.Call {
			if over[0].token > highest.token {
				highest = over[0]
			}
			over = over[1:]
		}
		if highest.Op != nil && g.token <= highest.token {
			blame(highest, g, "the earlier one was answered before the later one was asked for")
		}
		if before, twice := seen[g.token]; twice && (before.Owner != g.Owner || before.Return < g.Call) {
			blame(before, g, "the same one twice")
		}
		seen[g.token] = g
	}
	return wrong
}
