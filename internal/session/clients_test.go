package session

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

func TestGoRedis(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	ctx := context.Background()
	for _, proto := range []int{2, 3} {
		c := goredis.NewClient(&goredis.Options{Addr: p.addr, Protocol: proto, DB: 1, ClientName: "go-redis", DialTimeout: patience, ReadTimeout: patience})
		defer c.Close()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				key := fmt.Sprint("k", i)
				if err := c.Set(ctx, key, i, 0).Err(); err != nil {
					t.Error(err)
				}
				if got, err := c.Get(ctx, key).Int(); err != nil || got != i {
					t.Errorf("GET %s: %d, %v", key, got, err)
				}
			})
		}
		wg.Wait()
		if got, err := c.HSet(ctx, "h", "a", 1, "b", 2).Result(); err != nil || got > 2 {
			t.Errorf("HSET: %d, %v", got, err)
		}
		if got, err := c.HGetAll(ctx, "h").Result(); err != nil || got["b"] != "2" {
			t.Errorf("HGETALL: %v, %v", got, err)
		}
		cmds, err := c.Pipelined(ctx, func(pipe goredis.Pipeliner) error {
			for range 100 {
				pipe.Incr(ctx, "n")
			}
			return nil
		})
		if err != nil || len(cmds) != 100 {
			t.Errorf("pipeline: %d, %v", len(cmds), err)
		}
		// The library names itself, so that a pool's connection does not re-enter a lock by accident.
		conn := c.Conn()
		defer conn.Close()
		if got, err := conn.Do(ctx, "LOCK", "l").Text(); err != nil || got != "OK" {
			t.Errorf("LOCK: %q, %v", got, err)
		}
		if err := conn.Do(ctx, "LOCK", "l").Err(); err == nil {
			t.Error("a second LOCK on the connection of a named library re-enters")
		}
		if got, err := conn.Do(ctx, "UNLOCK", "l").Int(); err != nil || got != 1 {
			t.Errorf("UNLOCK: %d, %v", got, err)
		}
	}
}

func TestRedigo(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	c, err := redis.Dial("tcp", p.addr, redis.DialDatabase(2), redis.DialClientName("redigo"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 100 {
		if err := c.Send("RPUSH", "list", i); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Do(""); err != nil {
		t.Fatal(err)
	}
	if got, err := redis.Ints(c.Do("LRANGE", "list", 0, -1)); err != nil || len(got) != 100 || got[99] != 99 {
		t.Fatalf("%v, %v", got, err)
	}
	if got, err := redis.String(redis.NewScript(1, "return redis.call('SET', KEYS[1], ARGV[1]).ok").Do(c, "k", "v")); err != nil || got != "OK" {
		t.Fatalf("script: %q, %v", got, err)
	}
}

func TestRueidis(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{p.addr}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()
	if err := c.Do(ctx, c.B().Zadd().Key("z").ScoreMember().ScoreMember(1.5, "a").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	got, err := c.Do(ctx, c.B().Zrange().Key("z").Min("0").Max("-1").Withscores().Build()).AsZScores()
	if err != nil || len(got) != 1 || got[0].Score != 1.5 {
		t.Fatalf("%v, %v", got, err)
	}
	if got, err := c.Do(ctx, c.B().Arbitrary("LOCK").Keys("l").Build()).ToString(); err != nil || got != "OK" {
		t.Fatalf("LOCK: %q, %v", got, err)
	}
}
