// Command rivals is the Go contestants of the bench: locks of other libraries, and lockproxy's through the client that they use.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/lockproxy/lockproxy/bench/contest"
)

// lease is what all take their locks for: lockproxy's and Redisson's own.
const lease = 30 * time.Second

func main() {
	contest.Main(os.Args[1:], map[string]contest.Contestant{
		"redsync":     {Version: version("github.com/go-redsync/redsync/v4"), Start: startRedsync},
		"redislock":   {Version: version("github.com/bsm/redislock"), Start: startRedislock},
		"rueidislock": {Version: version("github.com/redis/rueidis"), Start: startRueidislock},
		"lockproxy":   {Version: version("github.com/redis/go-redis/v9"), Start: startLockproxy},
	})
}

// version is that of a module in this program.
func version(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version
		}
	}
	return ""
}

// pool is a go-redis client with a connection for each of our clients, all of them made already.
func pool(s contest.Settings) (*redis.Client, error) {
	client := redis.NewClient(&redis.Options{Addr: s.Addr, PoolSize: s.Clients, MinIdleConns: s.Clients, ReadTimeout: -1})
	return client, client.Ping(context.Background()).Err()
}

// startRedsync leaves redsync its own pauses, 50 to 250 ms, but not its bound of 32 tries.
func startRedsync(s contest.Settings) (func(int) (contest.Pair, error), error) {
	client, err := pool(s)
	if err != nil {
		return nil, err
	}
	all := redsync.New(goredis.NewPool(client))
	return func(i int) (contest.Pair, error) {
		mutex := all.NewMutex(s.Key(i), redsync.WithExpiry(lease), redsync.WithTries(1<<30))
		return contest.Pair{Take: mutex.Lock, Release: func() error {
			held, err := mutex.Unlock()
			if err == nil && !held {
				err = contest.ErrNotHeld
			}
			return err
		}}, nil
	}, nil
}

// startRedislock uses the pause of its examples, 100 ms: it has none of its own.
func startRedislock(s contest.Settings) (func(int) (contest.Pair, error), error) {
	client, err := pool(s)
	if err != nil {
		return nil, err
	}
	locker := redislock.New(client)
	options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
	return func(i int) (contest.Pair, error) {
		var held *redislock.Lock
		return contest.Pair{Take: func() (err error) {
			// Without a deadline of the caller's it waits no longer than a lease.
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			held, err = locker.Obtain(ctx, s.Key(i), lease, options)
			return err
		}, Release: func() error { return held.Release(context.Background()) }}, nil
	}, nil
}

// startRueidislock keeps one key a lock instead of a majority of three, since there is one Redis.
func startRueidislock(s contest.Settings) (func(int) (contest.Pair, error), error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{s.Addr}}, KeyMajority: 1, KeyValidity: lease, NoLoopTracking: true,
	})
	if err != nil {
		return nil, err
	}
	return func(i int) (contest.Pair, error) {
		var release context.CancelFunc
		return contest.Pair{Take: func() (err error) {
			_, release, err = locker.WithContext(context.Background(), s.Key(i))
			return err
		}, Release: func() error { release(); return nil }}, nil
	}, nil
}

// startLockproxy names an owner, since commands of a pool go through any of its connections.
func startLockproxy(s contest.Settings) (func(int) (contest.Pair, error), error) {
	client, err := pool(s)
	if err != nil {
		return nil, err
	}
	return func(i int) (contest.Pair, error) {
		key, owner := s.Key(i), fmt.Sprint("client-", i)
		return contest.Pair{Take: func() error {
			got, err := client.Do(context.Background(), "LOCK", key, "BLOCK", 600000, "OWNER", owner, "EX", 30).Text()
			if err == nil && got != "OK" {
				err = fmt.Errorf("LOCK: %q", got)
			}
			return err
		}, Release: func() error {
			freed, err := client.Do(context.Background(), "UNLOCK", key, "OWNER", owner).Int()
			if err == nil && freed != 1 {
				err = contest.ErrNotHeld
			}
			return err
		}}, nil
	}, nil
}
