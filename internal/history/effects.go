package history

import (
	"fmt"
	"strconv"
)

// The effect oracle: clients read a counter and write it back one higher. Two acknowledged writes of the same value are a
// lost update, which fenced ones must never show.

// Effects are what became of the writes to one counter.
type Effects struct {
	Fenced        bool
	Acked, Unsure int64
	Lost          []Violation
	highest       int64
}

// Counters sorts all writes of a history by the counter they went to.
func Counters(ops []*Op) map[string]*Effects {
	out := map[string]*Effects{}
	writer := map[string]map[string]*Op{}
	for _, o := range ops {
		if len(o.Words) != 3 || o.Words[0] != "SET" {
			continue
		}
		counter, value := o.Words[1], o.Words[2]
		e := out[counter]
		if e == nil {
			e = &Effects{Fenced: o.Verb == "FENCED"}
			out[counter], writer[counter] = e, map[string]*Op{}
		}
		switch o.Outcome {
		case Unknown:
			e.Unsure++
		case OK:
			e.Acked++
			if before := writer[counter][value]; before != nil {
				e.Lost = append(e.Lost, Violation{Oracle: "effects", Key: o.Key(), Ops: []*Op{before, o},
					Text: fmt.Sprintf("both wrote %s to %s: an update was lost", value, counter)})
			}
			writer[counter][value] = o
			n, _ := strconv.ParseInt(value, 10, 64)
			e.highest = max(e.highest, n)
		}
	}
	return out
}

// Exact finds what is wrong with a fenced counter whose value is final in the end.
func (e *Effects) Exact(counter string, final int64) (wrong []Violation) {
	wrong = append(wrong, e.Lost...)
	if final < e.Acked || final > e.Acked+e.Unsure || final < e.highest {
		wrong = append(wrong, Violation{Oracle: "effects", Text: fmt.Sprintf(
			"%s is %d after %d acknowledged fenced writes and %d of unknown outcome, of which the highest acknowledged is %d",
			counter, final, e.Acked, e.Unsure, e.highest)})
	}
	return wrong
}
