package history

import (
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/history"
)

// leads says whether a server is a master.
func leads(c redis.Conn) bool {
	role, err := redis.Values(c.Do("ROLE"))
	if err != nil {
		return false
	}
	name, _ := redis.String(role[0], nil)
	return name == "master"
}

// watchHolds looks every now and then for whom Redis, or a majority of the nodes, has which locks. The function it returns ends it.
func (r *round) watchHolds() (end func()) {
	var addrs []string
	if len(r.nodes) == 0 {
		for _, s := range r.servers() {
			addrs = append(addrs, s.Addr())
		}
	}
	for _, n := range r.nodes {
		addrs = append(addrs, n.Addr())
	}
	var nodes []history.Asker
	var closers []func()
	for _, addr := range addrs {
		var c redis.Conn
		nodes = append(nodes, func(words ...any) []string {
			if c == nil || c.Err() != nil {
				c, _ = r.dial(addr, redis.DialReadTimeout(history.NoReply))
			}
			if c == nil || words[0] == "KEYS" && !leads(c) {
				return nil
			}
			list, _ := redis.Strings(c.Do(words[0].(string), words[1:]...))
			return list
		})
		closers = append(closers, func() {
			if c != nil {
				_ = c.Close()
			}
		})
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				for _, end := range closers {
					end()
				}
				return
			case <-time.After(100 * time.Millisecond):
				r.Look(nodes, len(r.nodes)/2+1)
			}
		}
	}()
	return func() { close(stop); <-done }
}
