package history

import (
	"fmt"
	"slices"
	"sort"
)

// The order oracle: who was seen in a fair queue before another one asked is granted before it.

// FIFO finds fair waiters of one key that were granted past one that was in the queue before they asked. pairs is how many
// grants had somebody to compare with.
func FIFO(key string, ops []*Op) (wrong []Violation, pairs int) {
	var fair, forced []*Op
	for _, o := range ops {
		if o.Force {
			forced = append(forced, o)
		}
		if o.Verb == "FAIRLOCK" && o.Outcome == OK && o.Queued > 0 && !o.tooLate() {
			fair = append(fair, o)
		}
	}
	sort.Slice(fair, func(i, j int) bool { return fair[i].Queued < fair[j].Queued })
	since := make(map[*Op]int64, len(fair))
	for _, o := range fair {
		since[o] = asked(o, ops)
	}
	for i, first := range fair {
		if since[first] < first.Call {
			continue // the place was that of an earlier request, which may have left the queue after it was seen there
		}
		compared := false
		for _, o := range fair[i+1:] {
			if since[o] <= first.Queued || slices.ContainsFunc(forced, func(f *Op) bool { return f.Call < first.Return && f.Return > first.Queued }) {
				continue // it may have been granted, and have lost it before it was told
			}
			compared = true
			if o.Return < first.Return {
				wrong = append(wrong, Violation{Oracle: "fifo", Key: key, Ops: []*Op{first, o},
					Text: fmt.Sprintf("%s was in the queue at %s, %s asked at %s and was granted first", first.Owner, At(first.Queued), o.Owner, At(o.Call))})
			}
		}
		if compared {
			pairs++
		}
	}
	return wrong, pairs
}

// asked is since when a waiter may have its place. A named owner has one, wherever it waits: that of an earlier request
// which had no answer yet, or never gets one, since nobody knows whether the owner has left the queue for it.
func asked(o *Op, ops []*Op) int64 {
	since := o.Call
	for _, p := range ops {
		if p.Verb == "FAIRLOCK" && p.Named && p.Owner == o.Owner && (p.Outcome == Unknown || p.Return > o.Call) {
			since = min(since, p.Call)
		}
	}
	return since
}
