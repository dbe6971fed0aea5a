package history

import (
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/gomodule/redigo/redis"
)

// searchFor is how long porcupine may search one key; then it is not decided, which is told and no violation.
const searchFor = 5 * time.Second

// check runs every oracle over what was recorded.
func (r *round) check() []violation {
	ops := r.history()
	r.mu.Lock()
	wrong := append([]violation(nil), r.wrong...)
	r.mu.Unlock()
	keys := byKey(ops)
	r.count(ops, len(keys))
	wrong = append(wrong, r.writes(ops)...)
	var names []string
	for key := range keys {
		names = append(names, key)
	}
	sort.Strings(names)
	for _, key := range names {
		sure, watchdog := r.p.drifted(keys[key])
		wrong = append(wrong, intervals(key, sure, watchdog)...)
		wrong = append(wrong, tokens(key, keys[key])...)
		if r.p.strict {
			wrong = append(wrong, starved(key, keys[key], watchdog)...)
			late, pairs := fifo(key, keys[key])
			wrong = append(wrong, late...)
			r.tally.fifo += pairs
		}
	}
	if !r.p.effects && r.p.nodes == 0 { // its keys live long, and are about effects; of a quorum a refusal has more reasons than the model
		wrong = append(wrong, r.search(names, keys)...)
	}
	return wrong
}

func (r *round) count(ops []*op, keys int) {
	r.tally = tally{rounds: 1, ops: len(ops), keys: keys, faults: len(r.faults)}
	for _, o := range ops {
		if o.Code == "NOQUORUM" {
			r.tally.short++
		}
		switch {
		case o.acquires() && o.Outcome == ok:
			r.tally.grants++
		case o.Outcome == unknown:
			r.tally.unknown++
		case o.Verb == "FENCED" && o.Outcome == failed:
			r.tally.refused++
		}
	}
}

// writes is the effect oracle over all counters.
func (r *round) writes(ops []*op) (wrong []violation) {
	c, err := redis.Dial("tcp", r.redis.Addr())
	if err != nil {
		return []violation{{Oracle: "effects", Text: err.Error()}}
	}
	defer c.Close()
	for counter, e := range counters(ops) {
		if !e.fenced {
			r.tally.unfenced += e.acked
			r.tally.lostUnfenced += int64(len(e.lost))
			continue
		}
		r.tally.fenced += e.acked
		final, err := redis.Int64(c.Do("GET", counter))
		if err != nil && err != redis.ErrNil {
			wrong = append(wrong, violation{Oracle: "effects", Text: fmt.Sprintf("GET %s: %v", counter, err)})
			continue
		}
		wrong = append(wrong, e.exact(counter, final)...)
	}
	return wrong
}

// search asks porcupine about every key.
func (r *round) search(names []string, keys map[string][]*op) (wrong []violation) {
	var mu sync.Mutex
	var group sync.WaitGroup
	next := make(chan string)
	for range 2 {
		group.Go(func() {
			for key := range next {
				v, decided := legal(key, keys[key], r.p.watchdog.Nanoseconds(), !r.p.strict)
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

// legal is porcupine's word on one key. It looks at the beginning of the history first: to see that there is no order takes a
// search of all of them, which grows fast.
func legal(key string, ops []*op, watchdog int64, faults bool) (wrong []violation, decided bool) {
	things := lower(ops, watchdog, faults)
	sort.Slice(things, func(i, j int) bool { return things[i].Return < things[j].Return })
	for n := 32; ; n *= 2 {
		some := things
		if n < len(things) {
			some = until(things, things[n].Return)
		}
		result, info := porcupine.CheckOperationsVerbose(model, some, searchFor)
		switch {
		case result == porcupine.Illegal:
			return []violation{{Oracle: "porcupine", Key: key, Text: "no order explains these replies, of which the last is one too many",
				Ops: culprits(things), picture: &info}}, true
		case n >= len(things):
			return nil, result == porcupine.Ok
		}
	}
}

// culprits are the first reply that cannot be explained, last, and some calls before it. things are sorted by their replies.
func culprits(things []porcupine.Operation) (out []*op) {
	n := sort.Search(len(things)-1, func(n int) bool {
		return porcupine.CheckOperationsTimeout(model, until(things, things[n].Return), searchFor) == porcupine.Illegal
	})
	for _, o := range things[max(0, n-12) : n+1] {
		t := o.Input.(*thing)
		if t.kind == doExpire {
			t.op.Call, t.op.Return, t.op.Text = o.Call, o.Return, "(its lease may be over)"
		}
		out = append(out, t.op)
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
