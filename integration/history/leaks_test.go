package history

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/history"
)

// When all clients have gone nothing of theirs may stay in Redis, but locks that are left to run out, and fencing tokens, which stay.

// leaks looks at Redis itself until nothing has leaked, or for too long.
func (r *round) leaks() {
	bound := 20*time.Second + 2*r.p.watchdog
	if r.p.strict { // nobody's lock is left to its watchdog: one that is there by then will still be
		bound = r.p.watchdog / 2
	}
	if r.p.nodes > 0 { // they may be young, and explicit owners' run out
		bound += 10 * time.Second
	}
	if r.orphans() && *length >= 5*time.Second {
		bound += r.tidyQueues()
	}
	defer r.places(bound)
	var left []string
	for end := time.Now().Add(bound); ; time.Sleep(20 * time.Millisecond) {
		if left = r.leftovers(); len(left) == 0 {
			return
		}
		if r.Blamed() { // its clients were stopped, and left what they had
			return
		}
		if time.Now().After(end) {
			break
		}
	}
	sort.Strings(left)
	r.Blame(history.Violation{Oracle: "leaks", Text: fmt.Sprintf("%v after all clients had gone Redis has: %s", bound, strings.Join(left, "; "))})
}

// orphans says whether a proxy was killed, or a failover brought back what was gone, or Redis was away, or full, when waiters gave up. Their places stay in the fair queue then, in
// Redisson's format, which has no TTL, until the next one asks for the lock.
func (r *round) orphans() bool {
	if r.p.upstream != alone {
		return true
	}
	for _, p := range r.proxies {
		if p.lives > 1 {
			return true
		}
	}
	return false
}

// tidyQueues asks for the locks of queues that are left, and says how long that may take: such a place counts for 10 s.
func (r *round) tidyQueues() time.Duration {
	for _, queue := range r.names("redisson_lock_queue:*") {
		name := strings.Trim(strings.TrimPrefix(queue, "redisson_lock_queue:"), "{}")
		for end := time.Now().Add(30 * time.Second); !r.tidied(name) && time.Now().Before(end); {
			time.Sleep(100 * time.Millisecond)
		}
	}
	return 5 * time.Second
}

// names are the keys that fit a pattern, of all masters.
func (r *round) names(pattern string) (all []string) {
	for _, s := range r.masters() {
		c, err := r.dial(s.Addr())
		if err != nil {
			continue
		}
		some, _ := redis.Strings(c.Do("KEYS", pattern))
		all = append(all, some...)
		_ = c.Close()
	}
	return all
}

// tidied says whether a lock was taken, which the places of dead waiters do not outlast. A proxy that has just begun again may not be able to.
func (r *round) tidied(name string) bool {
	c, err := r.dial(r.proxies[0].addr)
	if err != nil {
		return false
	}
	defer c.Close() // gives it back
	reply, err := redis.DoWithTimeout(c, history.NoReply, "LOCK", name, "BLOCK", 20000)
	return err == nil && reply != nil
}

// unseen says whether a key is of a lock with LIMIT in which nobody has a place any more, of a round in which the end of a place may have been seen
// by nobody. It lasts for a day or two then, or until somebody asks.
func (r *round) unseen(c redis.Conn, name string) bool {
	name, _ = strings.CutSuffix(strings.TrimPrefix(name, "{"), "}:timeout")
	if r.p.strict || r.limited[name] == 0 {
		return false
	}
	words := history.PlacesTaken("{" + name + "}:timeout")
	owners, err := redis.Strings(c.Do(words[0].(string), words[1:]...))
	return err == nil && len(owners) == 0
}

// places has new owners take all places of locks with LIMIT when nobody has one: those of which Redis has something, and those of the last names.
// None is lost, and there are no more of them. When they have left Redis has nothing.
func (r *round) places(bound time.Duration) {
	last := r.Now() - (bound + 5*time.Second).Nanoseconds()
	names := history.Limited(slices.DeleteFunc(slices.Clone(r.History()), func(o *history.Op) bool { return o.Call < last }))
	for name, most := range r.limited {
		if n, _ := r.sum("EXISTS", name); n > 0 {
			names[name] = most
		}
	}
	for name, most := range names {
		if !r.Blamed() {
			r.takeAll(name, most)
		}
	}
	for end := time.Now().Add(10 * time.Second); !r.Blamed(); time.Sleep(20 * time.Millisecond) {
		var left []string
		for name := range names {
			if n, _ := r.sum("EXISTS", name, "{"+name+"}:timeout"); n > 0 {
				left = append(left, name)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			r.Blame(history.Violation{Oracle: "leaks", Text: fmt.Sprintf("when all that had a place have given it back Redis has: %q", left)})
		}
	}
}

// takeAll has so many owners take a place, and one more be refused.
func (r *round) takeAll(name string, most int) {
	for i := range most + 1 {
		c, err := r.dial(r.proxies[i%len(r.proxies)].addr)
		if err != nil {
			r.Blame(history.Violation{Oracle: "places", Key: name, Text: err.Error()})
			return
		}
		defer c.Close() // gives it back
		reply, err := c.Do("LOCK", name, "LIMIT", most)
		if err != nil || (reply != nil) != (i < most) {
			r.Blame(history.Violation{Oracle: "places", Key: name, Text: fmt.Sprintf("when all had gone, LOCK LIMIT %d was answered %v, %v to owner %d", most, reply, err, i+1)})
			return
		}
	}
}

// leftovers lists what should not be there for good.
func (r *round) leftovers() (left []string) {
	for _, s := range r.masters() {
		left = append(left, r.leftOn(s.Addr())...)
	}
	for i, n := range r.nodes {
		for _, text := range r.leftOn(n.Addr()) {
			left = append(left, fmt.Sprintf("node %d: %s", i, text))
		}
	}
	return left
}

// leftOn lists what should not be on one server.
func (r *round) leftOn(addr string) (left []string) {
	c, err := r.dial(addr)
	if err != nil {
		return []string{err.Error()}
	}
	defer c.Close()
	names, err := redis.Strings(c.Do("KEYS", "*"))
	if err != nil {
		return []string{err.Error()}
	}
	for _, name := range names {
		if strings.HasPrefix(name, "n:") || strings.HasPrefix(name, "redisson_lock_token:") {
			continue
		}
		if r.unseen(c, name) {
			continue
		}
		ttl, _ := redis.Int64(c.Do("PTTL", name))
		if ttl == -2 { // it has gone meanwhile
			continue
		}
		if r.orphans() && strings.HasPrefix(name, "lockproxy_wake:") && ttl > 0 {
			continue // the entries of a killed proxy go with its TTL, after a minute
		}
		if *length < 5*time.Second && r.orphans() && strings.Contains(name, ":{f") {
			continue // of the fair queue: in a short run its ghosts are not waited for
		}
		left = append(left, fmt.Sprintf("%s for %d ms", name, ttl))
	}
	list := "CHANNELS"
	if r.cluster != nil {
		list = "SHARDCHANNELS"
	}
	channels, _ := redis.Strings(c.Do("PUBSUB", list, "redisson_*"))
	if len(channels) > 0 {
		left = append(left, fmt.Sprintf("%d channels subscribed to: %.200q", len(channels), channels))
	}
	return left
}
