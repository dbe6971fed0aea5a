package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// loopLoad is some connections that each take and release a lock over and over,
// one command in flight.
type loopLoad struct {
	addr        string
	connections int
	pair        func(i int) (take, release exchange) // of connection i
	shared      bool                                 // all use one lock: check that one holds it at a time
}

// loops is a loopLoad that runs.
type loops struct {
	loopLoad
	clients  []*client
	running  sync.WaitGroup
	stopping atomic.Bool
	sampling atomic.Bool
	pairs    atomic.Int64
	holders  atomic.Int32
	took     [][]time.Duration // per connection, while sampling
	mu       sync.Mutex
	failure  error // the first; under mu
}

// start connects all of l and lets them loop.
func (l loopLoad) start(ctx context.Context) (*loops, error) {
	r := &loops{loopLoad: l, took: make([][]time.Duration, l.connections)}
	for range l.connections {
		c, err := dial(ctx, l.addr)
		if err != nil {
			r.closeAll()
			return nil, err
		}
		r.clients = append(r.clients, c)
	}
	for i := range r.clients {
		r.running.Go(func() { r.loop(i) })
	}
	return r, nil
}

func (r *loops) loop(i int) {
	take, release := r.pair(i)
	for !r.stopping.Load() {
		began := time.Now()
		if err := r.once(r.clients[i], take, release); err != nil {
			r.fail(err)
			return
		}
		r.pairs.Add(1)
		if r.sampling.Load() {
			r.took[i] = append(r.took[i], time.Since(began))
		}
	}
}

func (r *loops) once(c *client, take, release exchange) error {
	if err := take.do(c); err != nil {
		return err
	}
	if r.shared {
		if n := r.holders.Add(1); n != 1 {
			return fmt.Errorf("%d connections hold the one lock", n)
		}
		r.holders.Add(-1)
	}
	return release.do(c)
}

// fail keeps the first error and ends all loops.
func (r *loops) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil {
		r.failure = err
		r.stopping.Store(true)
		r.closeAll()
	}
}

func (r *loops) closeAll() {
	for _, c := range r.clients {
		c.Close()
	}
}

// stop lets every connection finish its pair, cuts those that have not within
// 30 s, and returns the first error.
func (r *loops) stop() error {
	r.stopping.Store(true)
	cut := time.AfterFunc(30*time.Second, func() { r.fail(errors.New("connections still wait for the lock 30 s after the end")) })
	r.running.Wait()
	cut.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closeAll()
	return r.failure
}

// percentile returns the p-th part (0 to 1) of all sampled pairs' times in µs.
func (r *loops) percentile(p float64) float64 {
	all := slices.Concat(r.took...)
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return micros(all[int(p*float64(len(all)-1))])
}
