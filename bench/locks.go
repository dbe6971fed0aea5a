package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/scripts"
)

// lockLoad is one row group of the lock tables.
type lockLoad struct {
	Connections int  `json:"connections"`
	Shared      bool `json:"one_key"` // hand-off: all wait for one lock
}

// String reads like "hand-off, 32 waiters".
func (l lockLoad) String() string {
	if l.Shared {
		return "hand-off, " + plural(l.Connections, "waiter")
	}
	return "LOCK+UNLOCK, " + plural(l.Connections, "connection")
}

var (
	pairLoads    = []lockLoad{{1, false}, {50, false}}
	handoffLoads = []lockLoad{{2, true}, {32, true}, {128, true}, {1000, true}}
)

// lockSample is one measurement of one lock load through one target. A pair is
// one lock taken and released.
type lockSample struct {
	PerSecond float64 `json:"pairs_per_second"`
	P50       float64 `json:"p50_us"` // of a pair
	P99       float64 `json:"p99_us"`
	ProxyCPU  float64 `json:"proxy_cpu_us_per_pair"`
	RedisCPU  float64 `json:"redis_cpu_us_per_pair"`
	Scripts   float64 `json:"scripts_per_pair"` // run by Redis
}

// measureLocks fills the report's lock tables: pairs on a key each, against the
// same two scripts sent straight to Redis, and hand-off of one key.
func measureLocks(ctx context.Context, s settings, b *environment, rep *report) error {
	for _, script := range []*scripts.Script{scripts.Acquire, scripts.Release} {
		if _, err := ask(ctx, b.redisAddr, "SCRIPT", "LOAD", script.Source); err != nil {
			return err
		}
	}
	rows := []*target{b.target(direct), b.target(lockproxy)}
	for round := range s.rounds {
		for _, l := range append(pairLoads, handoffLoads...) {
			for _, t := range rows {
				key := lockKey{t.name, l}
				if t.problem != "" || rep.failed[key] != nil || l.Shared && t.name == direct {
					continue
				}
				progress("round %d of %d: %v", round+1, s.rounds, key)
				err := rep.measureLock(ctx, s, b, t, l)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				rep.note(key, err)
			}
		}
	}
	return nil
}

// measureLock adds one sample, taken while the load runs evenly.
func (rep *report) measureLock(ctx context.Context, s settings, b *environment, t *target, l lockLoad) error {
	running, err := loopLoad{t.addr, l.Connections, t.pair(l.Shared), l.Shared}.start(ctx)
	if err != nil {
		return err
	}
	unwatch := context.AfterFunc(ctx, func() { running.fail(ctx.Err()) })
	defer unwatch()
	sample, err := running.sample(ctx, s, b, t)
	if err := errors.Join(running.stop(), err); err != nil {
		return err
	}
	sample.P50, sample.P99 = running.percentile(0.5), running.percentile(0.99)
	key := lockKey{t.name, l}
	rep.locks[key] = append(rep.locks[key], sample)
	return nil
}

// sample reads every count, lets the load run, and reads them again.
func (r *loops) sample(ctx context.Context, s settings, b *environment, t *target) (lockSample, error) {
	pause(ctx, s.warm)
	cpu0, err0 := readCPU(b.redis, t.proxy)
	scripts0, err1 := scriptCalls(ctx, b.redisAddr)
	pairs0, began := r.pairs.Load(), time.Now()
	r.sampling.Store(true)
	pause(ctx, time.Duration(s.seconds*float64(time.Second)))
	r.sampling.Store(false)
	pairs, took := float64(r.pairs.Load()-pairs0), time.Since(began)
	cpu1, err2 := readCPU(b.redis, t.proxy)
	scripts1, err3 := scriptCalls(ctx, b.redisAddr)
	if err := errors.Join(err0, err1, err2, err3); err != nil {
		return lockSample{}, err
	}
	if pairs == 0 {
		return lockSample{}, fmt.Errorf("no lock was taken in %v", took)
	}
	return lockSample{
		PerSecond: pairs / took.Seconds(),
		ProxyCPU:  micros(cpu1.proxy-cpu0.proxy) / pairs,
		RedisCPU:  micros(cpu1.redis-cpu0.redis) / pairs,
		Scripts:   float64(scripts1-scripts0) / pairs,
	}, nil
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// pair returns what each connection sends: our verbs through a proxy, and what
// they become in Redis when sent straight.
func (t *target) pair(shared bool) func(i int) (take, release exchange) {
	return func(i int) (take, release exchange) {
		key := "bench:lock:" + strconv.Itoa(i)
		if shared {
			return exchange{command("LOCK", "bench:lock", "BLOCK", "60000"), "+OK"}, exchange{command("UNLOCK", "bench:lock"), ":1"}
		}
		if t.proxy != nil {
			return exchange{command("LOCK", key), "+OK"}, exchange{command("UNLOCK", key), ":1"}
		}
		owner := "00000000-0000-0000-0000-000000000000:" + strconv.Itoa(i)
		notAfter := strconv.FormatInt(time.Now().Add(24*time.Hour).UnixMicro(), 10)
		queue := "redisson_lock_queue:{" + key + "}"
		return exchange{command("EVALSHA", scripts.Acquire.SHA, "2", key, queue,
				"30000", owner, notAfter, "N", "PUBLISH"), ":1\r\n"},
			exchange{command("EVALSHA", scripts.Release.SHA, "2", key, queue,
				owner, "PUBLISH", notAfter, ""), ":1\r\n"}
	}
}

// scriptCalls returns how many scripts Redis has run.
func scriptCalls(ctx context.Context, addr string) (calls int64, err error) {
	info, err := ask(ctx, addr, "INFO", "commandstats")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		name, figures, _ := strings.Cut(line, ":calls=")
		switch name {
		case "cmdstat_eval", "cmdstat_evalsha", "cmdstat_eval_ro", "cmdstat_evalsha_ro", "cmdstat_fcall", "cmdstat_fcall_ro":
			figure, _, _ := strings.Cut(figures, ",")
			n, err := strconv.ParseInt(figure, 10, 64)
			if err != nil {
				return 0, err
			}
			calls += n
		}
	}
	return calls, nil
}
