package history

import (
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// searchFor is how long porcupine may search one key; then it is not decided, which is told and no violation.
const searchFor = 5 * time.Second

// Legal is porcupine's word on one key. It looks at the beginning of the history first: to see that there is no order takes a
// search of all of them, which grows fast. It looks at nothing that came after a failover which may have undone some of it.
func Legal(key string, ops []*Op, watchdog int64, faults bool, lapses ...Lapse) (wrong []Violation, decided bool) {
	things := lower(ops, watchdog, faults)
	for _, l := range lapses {
		if l.To >= ops[0].Call {
			things = until(things, l.From)
		}
	}
	sort.Slice(things, func(i, j int) bool { return things[i].Return < things[j].Return })
	for n := 32; ; n *= 2 {
		some := things
		if n < len(things) {
			some = until(things, things[n].Return)
		}
		result, info := porcupine.CheckOperationsVerbose(model, some, searchFor)
		switch {
		case result == porcupine.Illegal:
			return []Violation{{Oracle: "porcupine", Key: key, Text: "no order explains these replies, of which the last is one too many",
				Ops: culprits(things), picture: &info}}, true
		case n >= len(things):
			return nil, result == porcupine.Ok
		}
	}
}

// culprits are the first reply that cannot be explained, last, and some calls before it. things are sorted by their replies.
func culprits(things []porcupine.Operation) (out []*Op) {
	n := sort.Search(len(things)-1, func(n int) bool {
		return porcupine.CheckOperationsTimeout(model, until(things, things[n].Return), searchFor) == porcupine.Illegal
	})
	for _, o := range things[max(0, n-12) : n+1] {
		t := o.Input.(*thing)
		if t.kind == doExpire {
			t.Op.Call, t.Op.Return, t.Op.Text = o.Call, o.Return, "(its lease may be over)"
		}
		out = append(out, t.Op)
	}
	return out
}

// until is what happened up to a moment; what was under way then may have been done or not.
func until(things []porcupine.Operation, moment int64) (out []porcupine.Operation) {
	for _, o := range things {
		if o.Call > moment {
			continue
		}
		if o.Return > moment {
			open := *o.Input.(*thing)
			open.open = true
			o.Input, o.Return = &open, never
		}
		out = append(out, o)
	}
	return out
}
