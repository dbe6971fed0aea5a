package clients

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// goRedisLibrary is the client as the lock tests use it.
func goRedisLibrary(c *redis.Client) library {
	return library{named: true, do: func(ctx context.Context, args ...string) (any, error) {
		words := make([]any, len(args))
		for i, a := range args {
			words[i] = a
		}
		got, err := c.Do(ctx, words...).Result()
		if errors.Is(err, redis.Nil) {
			return nil, nil
		}
		return got, err
	}}
}

func TestInteropGoRedis(t *testing.T) {
	t.Parallel()
	_, p := startInterop(t)
	harness.Protocols(t, func(t *testing.T, proto int) {
		c := harness.NewGoRedis(t, &redis.Options{Addr: p.Addr(), Protocol: proto})
		ctx := context.Background()
		t.Run("types", func(t *testing.T) { goRedisTypes(t, c) })
		t.Run("scripts", func(t *testing.T) { goRedisScripts(t, c) })
		t.Run("large", func(t *testing.T) {
			for _, n := range sizes {
				value := strings.Repeat("x", n)
				if err := c.Set(ctx, "large", value, 0).Err(); err != nil {
					t.Fatal(n, err)
				}
				if got, err := c.Get(ctx, "large").Result(); err != nil || got != value {
					t.Errorf("%d bytes: got %d, %v", n, len(got), err)
				}
			}
		})
		t.Run("goroutines", func(t *testing.T) {
			harness.Together(50, func(worker int) {
				for i := range 100 {
					key := fmt.Sprintf("g:%d:%d", worker, i)
					if err := c.Set(ctx, key, key, time.Minute).Err(); err != nil {
						t.Error(err)
						return
					}
					if got, err := c.Get(ctx, key).Result(); err != nil || got != key {
						t.Errorf("%s: %q %v", key, got, err)
					}
				}
			})
		})
		goRedisLibrary(harness.NewGoRedis(t, &redis.Options{Addr: p.Addr(), Protocol: proto, PoolSize: 1})).lockAndUnlock(t)
		goRedisLibrary(c).lockWithOwner(t)
		goRedisLibrary(c).lockWithFence(t)
	})
}

func goRedisTypes(t *testing.T, c *redis.Client) {
	ctx := context.Background()
	if err := c.FlushDB(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(ctx, "nothing").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("GET nothing: %v", err)
	}
	if err := c.HSet(ctx, "h", "a", "1", "b", "2").Err(); err != nil {
		t.Error(err)
	}
	if got, err := c.HGetAll(ctx, "h").Result(); err != nil || got["a"] != "1" || len(got) != 2 {
		t.Errorf("HGETALL: %v %v", got, err)
	}
	if err := c.ZAdd(ctx, "z", redis.Z{Score: 1.5, Member: "m"}, redis.Z{Score: -2, Member: "n"}).Err(); err != nil {
		t.Error(err)
	}
	if got, err := c.ZRangeWithScores(ctx, "z", 0, -1).Result(); err != nil || len(got) != 2 || got[1].Score != 1.5 {
		t.Errorf("ZRANGE: %v %v", got, err)
	}
	if _, err := c.XAdd(ctx, &redis.XAddArgs{Stream: "x", Values: []string{"k", "v"}}).Result(); err != nil {
		t.Error(err)
	}
	if got, err := c.XRead(ctx, &redis.XReadArgs{Streams: []string{"x", "0"}, Block: -1}).Result(); err != nil || len(got) != 1 {
		t.Errorf("XREAD: %v %v", got, err)
	}
	if err := c.Incr(ctx, "h").Err(); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
		t.Errorf("INCR of a hash: %v", err)
	}
	pipe := c.Pipeline()
	for i := range 2000 {
		pipe.Set(ctx, fmt.Sprintf("p:%d", i), i, 0)
		pipe.Get(ctx, fmt.Sprintf("p:%d", i))
	}
	cmds, err := pipe.Exec(ctx)
	if err != nil || len(cmds) != 4000 || cmds[3999].(*redis.StringCmd).Val() != "1999" {
		t.Errorf("a pipeline of 4,000: %d, %v", len(cmds), err)
	}
	found := 0
	for iter := c.Scan(ctx, 0, "p:*", 100).Iterator(); iter.Next(ctx); {
		found++
	}
	if found != 2000 {
		t.Errorf("SCAN found %d of 2000", found)
	}
	if infos, err := c.Command(ctx).Result(); err != nil || infos["lock"] == nil || infos["lock"].FirstKeyPos != 1 || infos["get"] == nil {
		t.Errorf("COMMAND: %d commands, lock %+v, %v", len(infos), infos["lock"], err)
	}
	if info, err := c.Info(ctx).Result(); err != nil || !strings.Contains(info, "# Lockproxy\r\n") || !strings.Contains(info, "redis_version:") {
		t.Errorf("INFO: %v", err)
	}
}

func goRedisScripts(t *testing.T, c *redis.Client) {
	ctx := context.Background()
	script := redis.NewScript("return {KEYS[1], ARGV[1], redis.call('INCR', KEYS[1])}")
	sha, err := script.Load(ctx, c).Result()
	if err != nil || sha != script.Hash() {
		t.Fatalf("SCRIPT LOAD: %q %v", sha, err)
	}
	c.Del(ctx, "n")
	for i := range 3 {
		got, err := script.EvalSha(ctx, c, []string{"n"}, "arg").Slice()
		if err != nil || len(got) != 3 || got[2] != int64(i+1) {
			t.Errorf("EVALSHA: %v %v", got, err)
		}
	}
	if got, err := redis.NewScript("return 'run'").Run(ctx, c, nil).Text(); err != nil || got != "run" { // NOSCRIPT, then EVAL
		t.Errorf("Run: %q %v", got, err)
	}
	if got, err := c.ScriptExists(ctx, sha, "ffff").Result(); err != nil || !got[0] || got[1] {
		t.Errorf("SCRIPT EXISTS: %v %v", got, err)
	}
}

// A BLOCK longer than the library waits for a reply: it hangs up, and the wait ends with it.
func TestInteropGoRedisGivesUp(t *testing.T) {
	t.Parallel()
	_, p := startInterop(t)
	holder := harness.Dial(t, p.Addr())
	holder.Do("LOCK", "busy")
	c := harness.NewGoRedis(t, &redis.Options{Addr: p.Addr(), ReadTimeout: 300 * time.Millisecond, MaxRetries: -1})
	if got, err := goRedisLibrary(c).do(context.Background(), "LOCK", "busy", "OWNER", "late", "EX", "30", "BLOCK", "60000"); err == nil {
		t.Errorf("LOCK: %v", got)
	}
	patient := harness.NewGoRedis(t, &redis.Options{Addr: p.Addr(), ReadTimeout: harness.Patience})
	goRedisLibrary(patient).must(t, nil, "LOCK", "busy", "OWNER", "patient", "EX", "30", "BLOCK", "700")
	givenUp(t, p, holder, "busy")
}

// A context that is cancelled while LOCK waits is not looked at, and what is granted is the caller's to give back. A deadline ends the
// wait only with ContextTimeoutEnabled: go-redis closes the connection then.
func TestInteropGoRedisContext(t *testing.T) {
	t.Parallel()
	_, p := startInterop(t)
	for _, c := range []struct{ enabled, deadline, granted bool }{{false, false, true}, {false, true, true}, {true, false, true}, {true, true, false}} {
		holder := harness.Dial(t, p.Addr())
		harness.Expect(t, holder, "+OK\r\n", "LOCK", "busy")
		r := harness.NewGoRedis(t, &redis.Options{Addr: p.Addr(), ContextTimeoutEnabled: c.enabled, ReadTimeout: harness.Patience})
		if err := r.Ping(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(context.Background())
		if c.deadline {
			ctx, end = context.WithTimeout(context.Background(), 3*time.Second)
		}
		answer := make(chan error, 1)
		go waitWithGoRedis(ctx, r, answer)
		if c.granted {
			harness.Eventually(t, "it waits", func() bool { return harness.WaitingHere(t, holder, "busy") == 1 })
			if !c.deadline {
				end()
			}
			<-ctx.Done()
			harness.Expect(t, holder, ":1\r\n", "UNLOCK", "busy")
			if err := <-answer; err != nil {
				t.Errorf("%+v: %v", c, err)
			}
			harness.Expect(t, holder, ":1\r\n", "UNLOCK", "busy", "OWNER", "late")
		} else {
			if err := <-answer; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%+v: %v", c, err)
			}
			givenUp(t, p, holder, "busy")
		}
		end()
	}
}

func waitWithGoRedis(ctx context.Context, r *redis.Client, answer chan<- error) {
	answer <- r.Do(ctx, "LOCK", "busy", "OWNER", "late", "EX", "30", "BLOCK", "30000").Err()
}
