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
	for i, first := range fair {
		compared := false
		for _, o := range fair[i+1:] {
			if o.Call <= first.Queued || slices.ContainsFunc(forced, func(f *Op) bool { return f.Call < first.Return && f.Return > first.Queued }) {
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
