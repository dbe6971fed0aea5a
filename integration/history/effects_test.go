package history

import (
	"fmt"
	"strconv"
)

// The effect oracle: clients read a counter and write it back one higher. Two acknowledged writes of the same value are a
// lost update, which fenced ones must never show.

// effects are what became of the writes to one counter.
type effects struct {
	fenced        bool
	acked, unsure int64
	lost          []violation
	highest       int64
}

// counters sorts all writes of a history by the counter they went to.
func counters(ops []*op) map[string]*effects {
	out := map[string]*effects{}
	writer := map[string]map[string]*op{}
	for _, o := range ops {
		if len(o.Words) != 3 || o.Words[0] != "SET" {
			continue
		}
		counter, value := o.Words[1], o.Words[2]
		e := out[counter]
		if e == nil {
			e = &effects{fenced: o.Verb == "FENCED"}
			out[counter], writer[counter] = e, map[string]*op{}
		}
		switch o.Outcome {
		case unknown:
			e.unsure++
		case ok:
			e.acked++
			if before := writer[counter][value]; before != nil {
				e.lost = append(e.lost, violation{Oracle: "effects", Key: o.key(), Ops: []*op{before, o},
					Text: fmt.Sprintf("both wrote %s to %s: an update was lost", value, counter)})
			}
			writer[counter][value] = o
			n, _ := strconv.ParseInt(value, 10, 64)
			e.highest = max(e.highest, n)
		}
	}
	return out
}

// exact finds what is wrong with a fenced counter whose value is final in the end.
func (e *effects) exact(counter string, final int64) (wrong []violation) {
	wrong = append(wrong, e.lost...)
	if final < e.acked || final > e.acked+e.unsure || final < e.highest {
		wrong = append(wrong, violation{Oracle: "effects", Text: fmt.Sprintf(
			"%s is %d after %d acknowledged fenced writes and %d of unknown outcome, of which the highest acknowledged is %d",
			counter, final, e.acked, e.unsure, e.highest)})
	}
	return wrong
}
