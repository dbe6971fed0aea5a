package history

import (
	"fmt"
	"sort"
	"sync"

	"github.com/lockproxy/lockproxy/internal/history"
)

// check runs every oracle over what was recorded.
func (r *round) check() []history.Violation {
	ops := r.History()
	wrong := r.Wrong()
	keys := history.ByKey(ops)
	r.count(ops, len(keys))
	wrong = append(wrong, r.writes(ops)...)
	var names []string
	for key := range keys {
		names = append(names, key)
	}
	sort.Strings(names)
	for _, key := range names {
		sure, watchdog := r.p.drifted(keys[key])
		wrong = append(wrong, history.Intervals(key, sure, watchdog, r.Lapses(key)...)...)
		wrong = append(wrong, history.Forced(key, keys[key], r.p.nodes > 0, r.Lapses(key)...)...)
		wrong = append(wrong, history.Tokens(key, keys[key])...)
		wrong = append(wrong, r.Ends(key, keys[key], r.p.watchdog.Nanoseconds(), !r.p.strict, r.p.nodes > 0)...)
		if r.p.strict {
			wrong = append(wrong, history.Starved(key, keys[key], watchdog)...)
			late, pairs := history.FIFO(key, keys[key])
			wrong = append(wrong, late...)
			r.tally.fifo += pairs
		}
	}
	if !r.p.effects && r.p.nodes == 0 { // its keys live long, and are about effects; of a quorum a refusal has more reasons than the model
		wrong = append(wrong, r.search(names, keys)...)
	}
	return wrong
}

func (r *round) count(ops []*history.Op, keys int) {
	r.tally = tally{rounds: 1, ops: len(ops), keys: keys, faults: len(r.Faults())}
	for _, o := range ops {
		if o.Code == "NOQUORUM" {
			r.tally.short++
		}
		switch {
		case o.Acquires() && o.Outcome == history.OK:
			r.tally.grants++
		case o.Outcome == history.Unknown:
			r.tally.unknown++
		case o.Verb == "FENCED" && o.Outcome == history.Failed:
			r.tally.refused++
		}
	}
}

// writes is the effect oracle over all counters.
func (r *round) writes(ops []*history.Op) (wrong []history.Violation) {
	for counter, e := range history.Counters(ops) {
		if !e.Fenced {
			r.tally.unfenced += e.Acked
			r.tally.lostUnfenced += int64(len(e.Lost))
			continue
		}
		if r.mayLack(counter, ops) {
			continue
		}
		r.tally.fenced += e.Acked
		final, err := r.sum("GET", counter)
		if err != nil {
			wrong = append(wrong, history.Violation{Oracle: "effects", Text: fmt.Sprintf("GET %s: %v", counter, err)})
			continue
		}
		wrong = append(wrong, e.Exact(counter, final)...)
	}
	return wrong
}

// search asks porcupine about every key.
func (r *round) search(names []string, keys map[string][]*history.Op) (wrong []history.Violation) {
	var mu sync.Mutex
	var group sync.WaitGroup
	next := make(chan string)
	for range 2 {
		group.Go(func() {
			for key := range next {
				v, decided := history.Legal(key, keys[key], r.p.watchdog.Nanoseconds(), !r.p.strict, r.Lapses(key)...)
				mu.Lock()
				wrong = append(wrong, v...)
				if !decided {
					r.tally.undecided++
				}
				mu.Unlock()
			}
		})
	}
	for _, key := range names {
		next <- key
	}
	close(next)
	group.Wait()
	return wrong
}
