package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/bench/contest"
)

// contestant is one row of the lock tables.
type contestant struct {
	name      string
	lock      string  // what the program calls it
	of        string  // name of the rival in whose folder the program is, "" for this program
	through   string  // target
	warm      float64 // times the setting
	pairsOnly bool    // does not wait
	waitsOnly bool    // is there for one lock that all want
	herds     bool    // is there for one lock that is wanted through many proxies, or beside it
}

const (
	sameScripts  = "its two scripts, direct"
	relayScripts = "its two scripts, byte relay"
	leastScripts = "its two scripts, least proxy in Go"
	relayGets    = "two GETs, byte relay"
	ourScripts   = "its two scripts, lockproxy" // as clients' commands: what is left of a lock's cost without its engine
	ourGets      = "two GETs, lockproxy"
	redisson     = "Redisson"
	redissonFair = "Redisson, fair"
	herdLock     = "LOCK"
	herdFair     = "FAIRLOCK"
	herdWrite    = "WLOCK"
	redsync      = "redsync"
	redislock    = "redislock"
	rueidislock  = "rueidislock"
	redisPy      = "redis-py's Lock"
	nodeRedlock  = "node-redlock"
	oursGoRedis  = "lockproxy by go-redis"
	oursRedisPy  = "lockproxy by redis-py"
	oursIORedis  = "lockproxy by ioredis"
	jvmWarm      = 10 // times as long as others a JVM is given to compile what it runs
	handoffGoal  = 128
	pairsClients = 50
)

var contestants = []contestant{
	{name: lockproxy, lock: rawLock, through: lockproxy, warm: 1},
	{name: sameScripts, lock: rawScripts, through: direct, warm: 1, pairsOnly: true},
	{name: relayScripts, lock: rawScripts, through: byteRelay, warm: 1, pairsOnly: true},
	{name: leastScripts, lock: rawScripts, through: leastProxy, warm: 1, pairsOnly: true},
	{name: relayGets, lock: rawGets, through: byteRelay, warm: 1, pairsOnly: true},
	{name: ourScripts, lock: rawScripts, through: lockproxy, warm: 1, pairsOnly: true},
	{name: ourGets, lock: rawGets, through: lockproxy, warm: 1, pairsOnly: true},
	{name: leastLine, lock: rawLock, through: leastLine, warm: 1, waitsOnly: true},
	{name: herdLock, lock: rawLock, warm: 1, herds: true},
	{name: herdFair, lock: rawFair, warm: 1, herds: true},
	{name: herdWrite, lock: rawWrite, warm: 1, herds: true},
	{name: redisson, lock: "redisson", of: "redisson", through: direct, warm: jvmWarm},
	{name: redissonFair, lock: "fair", of: "redisson", through: direct, warm: jvmWarm, herds: true},
	{name: oursGoRedis, lock: "lockproxy", of: "go", through: lockproxy, warm: 1},
	{name: redsync, lock: "redsync", of: "go", through: direct, warm: 1},
	{name: redislock, lock: "redislock", of: "go", through: direct, warm: 1},
	{name: rueidislock, lock: "rueidislock", of: "go", through: direct, warm: 1},
	{name: oursRedisPy, lock: "lockproxy", of: "redis-py", through: lockproxy, warm: 1},
	{name: redisPy, lock: "own", of: "redis-py", through: direct, warm: 1},
	{name: oursIORedis, lock: "lockproxy", of: "node-redlock", through: lockproxy, warm: 1},
	{name: nodeRedlock, lock: "own", of: "node-redlock", through: direct, warm: 1},
}

func lockLoad(what string, clients int) load { return load{What: what, Connections: clients} }

var lockLoads = []load{
	lockLoad(pair, 1), lockLoad(pair, pairsClients), lockLoad(pair, 128),
	lockLoad(handoff, 2), lockLoad(handoff, 16), lockLoad(handoff, handoffGoal), lockLoad(handoff, 1000),
}

// measureLocks runs each load with all contestants in turn before the next.
func measureLocks(ctx context.Context, s settings, b *environment, rep *report) error {
	built := rep.rivals(ctx)
	for round := range s.rounds {
		for _, l := range lockLoads {
			for _, c := range contestants {
				if !c.takesPart(l) {
					continue
				}
				if err := c.sample(ctx, s, rep, b.target(c.through), l, built[c.of], round); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// sample adds what a contestant reaches in a round, on an empty Redis, to the report. A contestant that cannot run is
// passed over; the error ends the measurement.
func (c contestant) sample(ctx context.Context, s settings, rep *report, t *target, l load, r *rival, round int) error {
	k := key{c.name, l}
	if t.problem != "" || r.problem != nil || rep.failed[k] != nil {
		return nil
	}
	progress("round %d of %d: %v", round+1, s.rounds, k)
	if _, err := ask(ctx, t.redis.addrs[0], "FLUSHALL"); err != nil {
		return err
	}
	rep.add(k, func() (sample, error) { return c.race(ctx, s, t, l, r) })
	return ctx.Err()
}

func (c contestant) takesPart(l load) bool {
	switch l.What {
	case herd:
		return c.herds || c.name == redisson
	case handoff:
		return !c.pairsOnly && !c.herds
	}
	return !c.waitsOnly && !c.herds
}

// race runs a contestant once, which is in the program r.
func (c contestant) race(ctx context.Context, s settings, t *target, l load, r *rival) (sample, error) {
	warm := s.warm * c.warm
	ctx, cancel := context.WithTimeout(ctx, time.Duration((warm+s.seconds)*float64(time.Second))+2*time.Minute)
	defer cancel()
	words := append(slices.Clone(r.run), "-addr", t.addr, "-lock", c.lock, "-clients", strconv.Itoa(l.Connections),
		"-warm", fmt.Sprint(warm), "-seconds", fmt.Sprint(s.seconds))
	if l.What != pair {
		words = append(words, "-shared")
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr, cmd.WaitDelay = r.dir, &stderr, 5*time.Second
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		return sample{}, err
	}
	figures, result, err := watch(ctx, t, cmd.Process.Pid, out)
	in.Close()
	if err != nil {
		cancel() // it may not come to its end
	}
	if err := cmp.Or(err, cmd.Wait()); err != nil {
		return sample{}, fmt.Errorf("%w; %.300s", err, strings.Join(strings.Fields(stderr.String()), " "))
	}
	r.versions[c.name] = result.Version
	return figures, nil
}

// watch reads what a contestant says, and what everybody has used when it says so.
func watch(ctx context.Context, t *target, pid int, out io.Reader) (figures sample, result contest.Result, err error) {
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "begin" {
		return figures, result, fmt.Errorf("it did not begin, but said %.100q", lines.Text())
	}
	before, err := t.usage(ctx, pid)
	if err != nil {
		return figures, result, err
	}
	if !lines.Scan() {
		return figures, result, errors.New("it has no result")
	}
	after, err := t.usage(ctx, pid)
	if err != nil {
		return figures, result, err
	}
	if err := json.Unmarshal(lines.Bytes(), &result); err != nil {
		return figures, result, err
	}
	if result.Pairs == 0 || result.Seconds <= 0 {
		return figures, result, fmt.Errorf("nobody came to an end in the %.1f s that count", result.Seconds)
	}
	figures = between(before, after, float64(result.Pairs))
	figures.PerSecond, figures.Changes = float64(result.Pairs)/result.Seconds, float64(result.Changes)/result.Seconds
	figures.P50, figures.P99 = result.P50, result.P99
	figures.Longest, figures.Least, figures.Most = result.Longest, float64(result.Least), float64(result.Most)
	return figures, result, nil
}
