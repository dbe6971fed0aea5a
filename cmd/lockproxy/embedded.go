package main

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/lockproxy/lockproxy/upstream"
)

// clockRest is how many times as long as a tick of the embedded store's clock takes the clock rests until the next.
const clockRest = 9

// embedded is a Redis-like store in this process, for trying lockproxy out.
type embedded struct {
	redis *miniredis.Miniredis
	began time.Time
	next  atomic.Int64 // ns after began from which a command moves the store's clock

	mu   sync.Mutex
	last time.Time // what the clock was moved to; under mu
}

// startEmbedded starts the store on a loopback port of its own. Its clock does not run by itself: commands move it,
// so that a store that nobody uses costs nothing.
func startEmbedded(log *slog.Logger) (*embedded, error) {
	began := time.Now()
	e := &embedded{redis: miniredis.NewMiniRedis(), began: began, last: began}
	if err := e.redis.Start(); err != nil {
		return nil, err
	}
	e.redis.Server().SetPreHook(e.before)
	log.Warn("no --upstream given: this is the EMBEDDED STORE, for trying lockproxy out. It forgets everything when " +
		"lockproxy ends, knows only part of Redis' commands, and no other lockproxy shares its locks")
	return e, nil
}

// before runs before each command. It answers CLUSTER as a Redis without it does. The store would say that it is one,
// at its own address, and clients that ask, such as rueidis, would go there: past the proxy and its locks.
func (e *embedded) before(p *server.Peer, cmd string, _ ...string) bool {
	if int64(time.Since(e.began)) >= e.next.Load() {
		e.moveClock()
	}
	if cmd != "CLUSTER" {
		return false
	}
	p.WriteError("ERR This instance has cluster support disabled")
	return true
}

// moveClock lets the time pass in the store that has passed. The store looks at all keys for it, and nobody else is
// served meanwhile: with many keys it is done less often. What has passed counts for all keys, also for one that was
// set since the last tick: it ends early by up to the clock's rest, some 10 µs with ten keys and 20 ms with ten
// thousand. While a script has the store, its own commands come here, too: for them the time stands still, as it does
// in Redis. Whoever else finds the store taken is behind a command that has moved the clock.
func (e *embedded) moveClock() {
	if !e.redis.TryLock() {
		return
	}
	e.redis.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if int64(now.Sub(e.began)) < e.next.Load() {
		return
	}
	e.redis.FastForward(now.Sub(e.last))
	e.last = now
	e.next.Store(int64(now.Sub(e.began) + clockRest*time.Since(now)))
}

func (e *embedded) url() (upstream.URL, error) { return upstream.ParseURL("redis://" + e.redis.Addr()) }

func (e *embedded) close() {
	e.redis.Close()
}
