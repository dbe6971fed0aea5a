package main

import (
	"log/slog"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/lockproxy/lockproxy/upstream"
)

const (
	clockTick = 10 * time.Millisecond // precision of expiry in the embedded store
	clockRest = 9                     // times as long as a tick takes until the next, at least
)

// embedded is a Redis-like store in this process, for trying lockproxy out.
type embedded struct {
	redis   *miniredis.Miniredis
	stop    chan struct{}
	ticking sync.WaitGroup
}

// startEmbedded starts the store on a loopback port of its own and drives its clock, which does not run by itself.
func startEmbedded(log *slog.Logger) (*embedded, error) {
	e := &embedded{redis: miniredis.NewMiniRedis(), stop: make(chan struct{})}
	if err := e.redis.Start(); err != nil {
		return nil, err
	}
	e.redis.Server().SetPreHook(noCluster)
	log.Warn("no --upstream given: this is the EMBEDDED STORE, for trying lockproxy out. It forgets everything when " +
		"lockproxy ends, knows only part of Redis' commands, and no other lockproxy shares its locks")
	e.ticking.Go(e.tick)
	return e, nil
}

// noCluster answers CLUSTER as a Redis without it does. The store would say that it is one, at its own address, and
// clients that ask, such as rueidis, would go there: past the proxy and its locks.
func noCluster(p *server.Peer, cmd string, _ ...string) bool {
	if cmd != "CLUSTER" {
		return false
	}
	p.WriteError("ERR This instance has cluster support disabled")
	return true
}

// tick lets time pass in the store; close waits for it. The store looks at all keys for it, and nobody else is served
// meanwhile: with many keys it is done less often.
func (e *embedded) tick() {
	timer := time.NewTimer(clockTick)
	defer timer.Stop()
	last := time.Now()
	for {
		select {
		case <-timer.C:
			now := time.Now()
			e.redis.FastForward(now.Sub(last))
			last = now
			timer.Reset(rest(time.Since(now)))
		case <-e.stop:
			return
		}
	}
}

// rest is the time from a tick that took so long to the next.
func rest(took time.Duration) time.Duration { return max(clockTick, clockRest*took) }

func (e *embedded) url() (upstream.URL, error) { return upstream.ParseURL("redis://" + e.redis.Addr()) }

func (e *embedded) close() {
	close(e.stop)
	e.ticking.Wait()
	e.redis.Close()
}
