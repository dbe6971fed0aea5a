package history

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/gomodule/redigo/redis"
)

// The order oracle: who was seen in a fair queue before another one asked is granted before it.

// fifo finds fair waiters of one key that were granted past one that was in the queue before they asked. pairs is how many
// grants had somebody to compare with.
func fifo(key string, ops []*op) (wrong []violation, pairs int) {
	var fair, forced []*op
	for _, o := range ops {
		if o.Force {
			forced = append(forced, o)
		}
		if o.Verb == "FAIRLOCK" && o.Outcome == ok && o.Queued > 0 && o.Lease == 0 {
			fair = append(fair, o)
		}
	}
	sort.Slice(fair, func(i, j int) bool { return fair[i].Queued < fair[j].Queued })
	for i, first := range fair {
		compared := false
		for _, o := range fair[i+1:] {
			if o.Call <= first.Queued || slices.ContainsFunc(forced, func(f *op) bool { return f.Call < first.Return && f.Return > first.Queued }) {
				continue // it may have been granted, and have lost it before it was told
			}
			compared = true
			if o.Return < first.Return {
				wrong = append(wrong, violation{Oracle: "fifo", Key: key, Ops: []*op{first, o},
					Text: fmt.Sprintf("%s was in the queue at %s, %s asked at %s and was granted first", first.Owner, at(first.Queued), o.Owner, at(o.Call))})
			}
		}
		if compared {
			pairs++
		}
	}
	return wrong, pairs
}

// watchQueues looks into Redis' fair queues all the time and notes on each call when it was first seen there. Calls of
// explicit owners only, whose names are known. The function it returns ends it.
func (r *round) watchQueues() (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		var c redis.Conn
		for {
			select {
			case <-stop:
				if c != nil {
					_ = c.Close()
				}
				return
			case <-time.After(time.Millisecond):
			}
			if c == nil || c.Err() != nil {
				c, _ = redis.Dial("tcp", r.redis.Addr(), redis.DialReadTimeout(noReply))
			}
			if c != nil {
				r.lookAtQueues(c)
			}
		}
	}()
	return func() { close(stop); <-done }
}

// lookAtQueues marks the calls that wait in a queue now.
func (r *round) lookAtQueues(c redis.Conn) {
	waiting := map[string]*op{} // owner and key -> its call
	keys := map[string]bool{}
	r.mu.Lock()
	still := r.fair[:0]
	for _, o := range r.fair {
		if o.Return == 0 && o.Queued == 0 {
			still = append(still, o)
			waiting[o.Owner+" "+o.key()], keys[o.key()] = o, true
		}
	}
	r.fair = still
	r.mu.Unlock()
	for key := range keys {
		owners, err := redis.Strings(c.Do("LRANGE", "redisson_lock_queue:{"+key+"}", 0, -1))
		if err != nil {
			continue
		}
		now := r.now()
		r.mu.Lock()
		for _, owner := range owners {
			if o := waiting[owner+" "+key]; o != nil {
				o.Queued = now
			}
		}
		r.mu.Unlock()
	}
}
