package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/bench/contest"
	"github.com/lockproxy/lockproxy/scripts"
)

// contestCommand makes this binary a contestant instead of the measurement: a process of its own, as the rivals are.
const contestCommand = "contest"

// The contestants that this program is: clients with a bare connection each, as redis-benchmark's are.
const (
	rawLock    = "lockproxy" // our verbs
	rawFair    = "fair"
	rawWrite   = "write"
	rawScripts = "scripts" // the two scripts that an uncontended pair becomes in Redis
	rawGet     = "get"     // GET: for more connections than redis-benchmark can be measured with
	rawGets    = "gets"    // two GETs, as often as a lock is taken and given back
)

var raw = map[string]contest.Contestant{
	rawLock:    {Start: startRaw(lockPair("LOCK"))},
	rawFair:    {Start: startRaw(lockPair("FAIRLOCK"))},
	rawWrite:   {Start: startRaw(lockPair("WLOCK"))},
	rawScripts: {Start: startScripts},
	rawGet:     {Start: startRaw(getPair)},
	rawGets:    {Start: startRaw(getsPair)},
}

// startRaw gives each client a connection, over which it sends what pair says.
func startRaw(pair func(s contest.Settings, i int) (take, release *exchange)) func(contest.Settings) (func(int) (contest.Pair, error), error) {
	return func(s contest.Settings) (func(int) (contest.Pair, error), error) {
		return func(i int) (contest.Pair, error) {
			c, err := dial(context.Background(), s.AddrOf(i))
			if err != nil {
				return contest.Pair{}, err
			}
			take, release := pair(s, i)
			both := contest.Pair{Take: func() error { return take.do(c) }}
			if release != nil {
				both.Release = func() error { return release.do(c) }
			}
			return both, nil
		}, nil
	}
}

func lockPair(verb string) func(s contest.Settings, i int) (take, release *exchange) {
	return func(s contest.Settings, i int) (take, release *exchange) {
		lock := command(verb, s.Key(i))
		if s.Shared {
			lock = command(verb, s.Key(i), "BLOCK", "600000")
		}
		return &exchange{lock, "+OK"}, &exchange{command("UNLOCK", s.Key(i)), ":1"}
	}
}

func getPair(contest.Settings, int) (take, release *exchange) {
	return &exchange{command("GET", dataKey(rand.IntN(keyCount))), "$"}, nil
}

func getsPair(s contest.Settings, i int) (first, second *exchange) {
	first, _ = getPair(s, i)
	second, _ = getPair(s, i)
	return first, second
}

// startScripts sends straight to Redis what our verbs become there.
func startScripts(s contest.Settings) (func(int) (contest.Pair, error), error) {
	for _, script := range []*scripts.Script{scripts.Acquire, scripts.Release} {
		if _, err := ask(context.Background(), s.Addr, "SCRIPT", "LOAD", script.Source); err != nil {
			return nil, err
		}
	}
	return startRaw(scriptPair)(s)
}

func scriptPair(s contest.Settings, i int) (take, release *exchange) {
	key, owner := s.Key(i), "00000000-0000-0000-0000-000000000000:"+strconv.Itoa(i)
	return &exchange{onLock(scripts.Acquire, key, taking(owner)), granted}, &exchange{onLock(scripts.Release, key, freeing(owner)), freed}
}

// onLock runs a script on a plain lock.
func onLock(script *scripts.Script, key string, args []string) []byte {
	keys := []string{"3", key, "redisson_lock_queue:{" + key + "}", "redisson_lock_token:{" + key + "}"}
	return command(slices.Concat([]string{"EVALSHA", script.SHA}, keys, args)...)
}

// taking and freeing are the ARGV of a lock's two scripts.
func taking(owner string) []string {
	return []string{owner, "1", "30000", tomorrow(), "", "", "PUBLISH", "", "0"}
}

func freeing(owner string) []string { return []string{owner, "0", tomorrow(), "", "PUBLISH", ""} }

func tomorrow() string { return strconv.FormatInt(time.Now().Add(24*time.Hour).UnixMicro(), 10) }

// dataKey is a key as redis-benchmark makes them.
func dataKey(i int) string { return fmt.Sprintf("key:%012d", i) }
