package clients

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
)

func newRedigoPool(t *testing.T, addr string, most int) *redis.Pool {
	t.Helper()
	pool := &redis.Pool{MaxActive: most, MaxIdle: most, Wait: true, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

// redigoLibrary takes a connection from the pool for each command.
func redigoLibrary(pool *redis.Pool) library {
	return library{do: func(ctx context.Context, args ...string) (any, error) {
		c, err := pool.GetContext(ctx)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		got, err := redis.DoContext(c, ctx, args[0], redis.Args{}.AddFlat(args[1:])...)
		if b, isBytes := got.([]byte); isBytes {
			return string(b), err
		}
		return got, err
	}}
}

func TestInteropRedigo(t *testing.T) {
	t.Parallel()
	_, p := startInterop(t)
	pool := newRedigoPool(t, p.Addr(), 32)
	t.Run("types", func(t *testing.T) { redigoTypes(t, pool.Get()) })
	t.Run("large", func(t *testing.T) {
		c := pool.Get()
		defer c.Close()
		for _, n := range sizes {
			value := strings.Repeat("x", n)
			if _, err := c.Do("SET", "large", value); err != nil {
				t.Fatal(n, err)
			}
			if got, err := redis.String(c.Do("GET", "large")); err != nil || got != value {
				t.Errorf("%d bytes: got %d, %v", n, len(got), err)
			}
		}
	})
	t.Run("goroutines", func(t *testing.T) {
		harness.Together(50, func(worker int) {
			c := pool.Get()
			defer c.Close()
			for i := range 100 {
				key := fmt.Sprintf("g:%d:%d", worker, i)
				if _, err := c.Do("SET", key, key, "EX", 60); err != nil {
					t.Error(err)
					return
				}
				if got, err := redis.String(c.Do("GET", key)); err != nil || got != key {
					t.Errorf("%s: %q %v", key, got, err)
				}
			}
		})
	})
	redigoLibrary(newRedigoPool(t, p.Addr(), 1)).lockAndUnlock(t)
	redigoLibrary(pool).lockWithOwner(t)
	redigoLibrary(pool).lockWithFence(t)
}

func redigoTypes(t *testing.T, c redis.Conn) {
	defer c.Close()
	if _, err := redis.String(c.Do("GET", "nothing")); !errors.Is(err, redis.ErrNil) {
		t.Errorf("GET nothing: %v", err)
	}
	if _, err := c.Do("HSET", "h", "a", 1, "b", 2); err != nil {
		t.Error(err)
	}
	if got, err := redis.IntMap(c.Do("HGETALL", "h")); err != nil || got["b"] != 2 || len(got) != 2 {
		t.Errorf("HGETALL: %v %v", got, err)
	}
	const n = 4000
	for i := range n {
		if err := c.Send("SET", fmt.Sprintf("p:%d", i), i); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	for range n {
		if got, err := redis.String(c.Receive()); err != nil || got != "OK" {
			t.Fatalf("pipelined: %q %v", got, err)
		}
	}
	found := 0
	for cursor := "0"; ; {
		page, err := redis.Values(c.Do("SCAN", cursor, "MATCH", "p:*", "COUNT", 100))
		if err != nil {
			t.Fatal(err)
		}
		keys, err := redis.Strings(page[1], nil)
		if err != nil {
			t.Fatal(err)
		}
		found += len(keys)
		if cursor, err = redis.String(page[0], nil); err != nil || cursor == "0" {
			break
		}
	}
	if found != n {
		t.Errorf("SCAN found %d of %d", found, n)
	}
	script := redis.NewScript(1, "return {KEYS[1], ARGV[1]}")
	if err := script.Load(c); err != nil {
		t.Error(err)
	}
	if got, err := redis.Strings(script.Do(c, "k", "a")); err != nil || strings.Join(got, " ") != "k a" {
		t.Errorf("script: %v %v", got, err)
	}
	if _, err := c.Do("INCR", "h"); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
		t.Errorf("INCR of a hash: %v", err)
	}
}

// A BLOCK longer than the read time-out: redigo closes the connection, and the wait ends with it.
func TestInteropRedigoGivesUp(t *testing.T) {
	t.Parallel()
	_, p := startInterop(t)
	holder := harness.Dial(t, p.Addr())
	holder.Do("LOCK", "busy")
	c, err := redis.Dial("tcp", p.Addr(), redis.DialReadTimeout(300*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := redis.DoWithTimeout(c, harness.Patience, "LOCK", "busy", "BLOCK", 700); got != nil || err != nil {
		t.Errorf("with a time-out of its own: %v %v", got, err)
	}
	if got, err := c.Do("LOCK", "busy", "BLOCK", 60000); err == nil {
		t.Errorf("LOCK: %v", got)
	}
	givenUp(t, p, holder, "busy")
}
