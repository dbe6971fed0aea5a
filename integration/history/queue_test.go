package history

import (
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/history"
)

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
				c, _ = redis.Dial("tcp", r.redis.Addr(), redis.DialReadTimeout(history.NoReply))
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
	waiting := map[string]*history.Op{} // owner and key -> its call
	keys := map[string]bool{}
	for _, o := range r.Fair() {
		waiting[o.Owner+" "+o.Key()], keys[o.Key()] = o, true
	}
	for key := range keys {
		owners, err := redis.Strings(c.Do("LRANGE", "redisson_lock_queue:{"+key+"}", 0, -1))
		if err != nil {
			continue
		}
		for _, owner := range owners {
			if o := waiting[owner+" "+key]; o != nil {
				r.Queued(o)
			}
		}
	}
}
