package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/program"
)

// What lockproxy itself costs is measured with so many.
const (
	ownClients    = 10000
	ownLocks      = 100000
	locksEach     = 100 // of the first ownLocks/locksEach connections
	lease         = 30 * time.Second
	starts        = 9
	settle        = 5 * time.Second
	idleFor       = 20.0 // seconds, at most, and a third of the time that locks are watched
	looksASecond  = 1000
	askersAtOnce  = 16
	bytesPerMB    = 1 << 20
	watchFact     = "100,000 watched locks: CPU of lockproxy"
	watchRedis    = "100,000 watched locks: CPU of Redis"
	watchLeft     = "100,000 watched locks: shortest lease left of those looked at"
	watchKept     = "100,000 watched locks: still held at the end"
	idleEmbedded  = "idle, with the embedded store"
	idleRedis     = "idle, before Redis"
	idleAsks      = "idle, before Redis: commands that Redis gets"
	startFact     = "start, to the first reply"
	memoryAtStart = "memory at the start"
	memoryClient  = "memory of a connection that waits for its client"
	memoryLock    = "memory of a held lock, in lockproxy"
	memoryInRedis = "memory of a held lock, in Redis"
	readersFact   = "1,000 readers that leave at once: CPU of Redis for each ÷ that where ten do"
	readers       = 1000
)

// measureOwn measures what lockproxy costs beside the work it does for others.
func measureOwn(ctx context.Context, s settings, b *environment, rep *report) error {
	if t := b.target(lockproxy); t.problem != "" {
		return nil // said already
	}
	steps := []struct {
		name string
		do   func(context.Context, settings, *environment, *report) error
	}{{"start", measureStart}, {"idle", measureIdle}, {"held locks", measureHeld}, {"readers", measureReaders}, {"telemetry", measureTelemetry}}
	for _, step := range steps {
		progress("lockproxy itself: %s", step.name)
		if err := step.do(ctx, s, b, rep); err != nil {
			rep.missing("lockproxy itself: "+step.name, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// measureStart is from the start of the process to the reply of Redis to the first command.
func measureStart(ctx context.Context, _ settings, b *environment, rep *report) error {
	var took, memory []float64
	for range starts {
		addr, err := program.FreeAddr()
		if err != nil {
			return err
		}
		began := time.Now()
		p, err := b.launch("start", addr, "redis://"+b.single.addrs[0])
		if err != nil {
			return err
		}
		for err = tryGet(ctx, addr); err != nil && !p.Ended() && time.Since(began) < time.Minute; err = tryGet(ctx, addr) {
			time.Sleep(time.Millisecond)
		}
		took = append(took, time.Since(began).Seconds()*1000)
		resident, err2 := residentOf(p.Cmd.Process.Pid)
		memory = append(memory, resident/bytesPerMB)
		p.Stop()
		if err := errors.Join(err, err2); err != nil {
			return fmt.Errorf("%w: %s", err, p.Tail())
		}
	}
	same := func(v float64) float64 { return v }
	rep.fact(fact{Name: startFact, Value: median(took, same), Unit: "ms"})
	rep.fact(fact{Name: memoryAtStart, Value: median(memory, same), Unit: "MB"})
	return nil
}

// measureIdle is what a proxy uses that nobody uses. Its Redis is its own: other proxies have things to ask, too.
func measureIdle(ctx context.Context, s settings, b *environment, rep *report) error {
	alone := &redis{}
	defer alone.stop()
	if err := alone.start(ctx, b.dir, "redis-idle"); err != nil {
		return err
	}
	for _, f := range []struct{ name, upstream string }{{idleEmbedded, ""}, {idleRedis, "redis://" + alone.addrs[0]}} {
		addr, err := program.FreeAddr()
		if err != nil {
			return err
		}
		p, err := b.launch("idle", addr, f.upstream)
		if err != nil {
			return err
		}
		defer p.Stop()
		if err := p.Ready(ctx, addr, tryPing); err != nil {
			return err
		}
		t := &target{proxy: p, redis: alone}
		pause(ctx, settle)
		before, err1 := t.usage(ctx, 0)
		pause(ctx, time.Duration(min(s.watch/3, idleFor)*float64(time.Second)))
		after, err2 := t.usage(ctx, 0)
		p.Stop()
		if err := errors.Join(err1, err2, ctx.Err()); err != nil {
			return err
		}
		rep.fact(fact{Name: f.name, Value: share(after.proxy-before.proxy, before, after), Unit: "% of a CPU", Most: 0.1})
		if f.upstream != "" {
			rep.fact(fact{Name: idleAsks, Value: float64(after.commands-before.commands) / after.at.Sub(before.at).Seconds(), Unit: "a second"})
		}
	}
	return nil
}

func share(used time.Duration, from, to usage) float64 {
	return 100 * used.Seconds() / to.at.Sub(from.at).Seconds()
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// measureHeld connects many clients, has them take many locks, and watches these being renewed.
func measureHeld(ctx context.Context, s settings, b *environment, rep *report) (err error) {
	if _, err := ask(ctx, b.single.addrs[0], "FLUSHALL"); err != nil {
		return err
	}
	addr, err := program.FreeAddr()
	if err != nil {
		return err
	}
	p, err := b.launch("held", addr, "redis://"+b.single.addrs[0])
	if err != nil {
		return err
	}
	defer p.Stop()
	if err := p.Ready(ctx, addr, tryGet); err != nil {
		return err
	}
	t := &target{addr: addr, proxy: p, redis: b.single}
	clients := make([]*client, ownClients)
	defer func() {
		for _, c := range clients {
			if c != nil {
				c.Close()
			}
		}
	}()
	began, err := t.memory(ctx)
	if err != nil {
		return err
	}
	if err := each(ownClients, func(i int) (err error) {
		if clients[i], err = dial(ctx, addr); err != nil {
			return err
		}
		return exchange{command("GET", "bench:ready"), "$"}.do(clients[i])
	}); err != nil {
		return err
	}
	connected, err := t.memory(ctx)
	if err != nil {
		return err
	}
	if err := each(ownLocks/locksEach, func(i int) error {
		_, err := clients[i].eachLock(i, "LOCK", "+OK")
		return err
	}); err != nil {
		return err
	}
	locked, err := t.memory(ctx)
	if err != nil {
		return err
	}
	rep.fact(fact{Name: memoryClient, Value: (connected.proxy - began.proxy) / ownClients / 1024, Unit: "KB"})
	rep.fact(fact{Name: memoryLock, Value: (locked.proxy - connected.proxy) / ownLocks / 1024, Unit: "KB", Most: 1, Limit: limitMemory})
	rep.fact(fact{Name: memoryInRedis, Value: (locked.redis - connected.redis) / ownLocks / 1024, Unit: "KB"})
	if err := t.watchLocks(ctx, s, rep); err != nil {
		return err
	}
	var kept atomic.Int64
	unlocked := each(ownLocks/locksEach, func(i int) error {
		n, err := clients[i].eachLock(i, "UNLOCK", ":1")
		kept.Add(int64(n))
		return err
	})
	rep.fact(fact{Name: watchKept, Value: float64(kept.Load()), Unit: "locks", Least: ownLocks})
	// Those without locks, too: a connection that is lost is a fault of its own.
	return errors.Join(unlocked, each(ownClients, func(i int) error { return exchange{command("PING"), "+PONG"}.do(clients[i]) }))
}

// eachLock sends a verb for each lock of the connection of that number, until one has another reply than want; done is how many had that.
func (c *client) eachLock(number int, verb, want string) (done int, err error) {
	for done < locksEach {
		if err := (exchange{command(verb, watchedKey(number*locksEach+done)), want}).do(c); err != nil {
			return done, err
		}
		done++
	}
	return done, nil
}

func watchedKey(i int) string { return "bench:watched:" + strconv.Itoa(i) }

// each does something with each of n connections, askersAtOnce at once. Its error says with how many it failed, and how with the first.
func each(n int, do func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for a := range askersAtOnce {
		all.Go(func() {
			for i := a; i < n; i += askersAtOnce {
				errs[i] = do(i)
			}
		})
	}
	all.Wait()
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d connections failed, the first: %w", len(failed), n, failed[0])
}

// memories are what the proxy has from the system, and what Redis has in use, in bytes.
type memories struct{ proxy, redis float64 }

func (t *target) memory(ctx context.Context) (m memories, err error) {
	info, err := ask(ctx, t.redis.addrs[0], "INFO", "memory")
	if err != nil {
		return m, err
	}
	_, rest, _ := strings.Cut(info, "used_memory:")
	figure, _, _ := strings.Cut(rest, "\r")
	if m.redis, err = strconv.ParseFloat(figure, 64); err != nil {
		return m, err
	}
	m.proxy, err = residentOf(t.proxy.Cmd.Process.Pid)
	return m, err
}

// watchLocks looks how long the leases still are, of some locks each second, while nothing else happens.
func (t *target) watchLocks(ctx context.Context, s settings, rep *report) error {
	c, err := dial(ctx, t.redis.addrs[0])
	if err != nil {
		return err
	}
	defer c.Close()
	// The first renewals come after a third of a lease: before, all is quiet.
	pause(ctx, lease/3)
	before, err := t.usage(ctx, 0)
	if err != nil {
		return err
	}
	shortest := lease
	for end := time.Now().Add(time.Duration(s.watch * float64(time.Second))); time.Now().Before(end) && ctx.Err() == nil; {
		left, err := c.shortestLease(looksASecond)
		if err != nil {
			return err
		}
		shortest = min(shortest, left)
		pause(ctx, time.Second)
	}
	after, err := t.usage(ctx, 0)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	rep.fact(fact{Name: watchFact, Value: share(after.proxy-before.proxy, before, after), Unit: "% of a CPU", Most: 2.2, Limit: limitRenewal})
	rep.fact(fact{Name: watchRedis, Value: share(after.redis-before.redis, before, after), Unit: "% of a CPU", Most: 2, Limit: limitRenewal})
	rep.fact(fact{Name: watchLeft, Value: shortest.Seconds(), Unit: "s of 30", Least: lease.Seconds() / 2})
	return nil
}

// shortestLease looks at n of the locks.
func (c *client) shortestLease(n int) (shortest time.Duration, err error) {
	var all []byte
	for range n {
		all = append(all, command("PTTL", watchedKey(rand.IntN(ownLocks)))...)
	}
	if _, err := c.Write(all); err != nil {
		return 0, err
	}
	lefts := make([]time.Duration, n)
	for i := range lefts {
		reply, err := c.reply()
		if err != nil {
			return 0, err
		}
		ms, err := strconv.Atoi(strings.TrimSpace(string(reply[1:])))
		if err != nil || reply[0] != ':' {
			return 0, fmt.Errorf("PTTL: %q", reply)
		}
		lefts[i] = max(0, time.Duration(ms)*time.Millisecond) // of a lock that is gone, nothing is left
	}
	return slices.Min(lefts), nil
}

// measureReaders has readers leave, as many of one lock as of a hundred locks together, by turns.
func measureReaders(ctx context.Context, s settings, b *environment, rep *report) error {
	t, few := b.target(lockproxy), 10
	clients := make([]*client, readers)
	for i := range clients {
		c, err := dial(ctx, t.addr)
		if err != nil {
			return err
		}
		defer c.Close()
		clients[i] = c
	}
	var ratios []float64
	for range 5 * s.rounds {
		crowd, err1 := t.leave(ctx, clients, readers)
		small, err2 := t.leave(ctx, clients, few)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		ratios = append(ratios, ratio(crowd, small))
	}
	rep.fact(fact{Name: readersFact, Value: median(ratios, func(v float64) float64 { return v }), Unit: "×", Most: 2})
	return nil
}

// leave is the CPU of Redis while all clients give back what they read, so many of each lock.
func (t *target) leave(ctx context.Context, clients []*client, together int) (cpu float64, err error) {
	all := func(verb, want string) error {
		for i, c := range clients {
			if _, err := c.Write(command(verb, "bench:read:"+strconv.Itoa(i/together))); err != nil {
				return err
			}
		}
		for _, c := range clients {
			if reply, err := c.reply(); err != nil || !strings.HasPrefix(string(reply), want) {
				return fmt.Errorf("%s: %.100q: %w", verb, reply, err)
			}
		}
		return nil
	}
	if err := all("RLOCK", "+OK"); err != nil {
		return 0, err
	}
	before, err1 := t.usage(ctx, 0)
	err2 := all("UNLOCK", ":1")
	after, err3 := t.usage(ctx, 0)
	return micros(after.redis - before.redis), errors.Join(err1, err2, err3)
}
