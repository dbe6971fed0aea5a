package clients

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/integration/harness"
)

func newRueidis(t *testing.T, o rueidis.ClientOption) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// rueidisLibrary marks LOCK as blocking, which it must be with BLOCK: rueidis shares one connection between all goroutines,
// and gives blocking commands others.
func rueidisLibrary(c rueidis.Client) library {
	return library{named: true, do: func(ctx context.Context, args ...string) (any, error) {
		command := c.B().Arbitrary(args[0]).Args(args[1:]...)
		var result rueidis.RedisResult
		if args[0] == "LOCK" && strings.Contains(strings.Join(args, " "), "BLOCK") {
			result = c.Do(ctx, command.Blocking())
		} else {
			result = c.Do(ctx, command.Build())
		}
		got, err := result.ToAny()
		if rueidis.IsRedisNil(err) {
			return nil, nil
		}
		return got, err
	}}
}

// rueidis caches unless told otherwise: CLIENT TRACKING OPTIN, and invalidations pushed.
func TestInteropRueidisWithCache(t *testing.T) {
	t.Parallel()
	server, p := startInterop(t)
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{p.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()
	for _, value := range []string{"one", "two", "three"} {
		server.Do(t, "SET", "cached", value)
		harness.Eventually(t, "the new value is read", func() bool {
			got, err := c.DoCache(ctx, c.B().Get().Key("cached").Cache(), time.Hour).ToString()
			return err == nil && got == value
		})
		if r := c.DoCache(ctx, c.B().Get().Key("cached").Cache(), time.Hour); !r.IsCacheHit() {
			t.Errorf("%q was asked for again", value)
		}
	}
	if err := c.Do(ctx, c.B().Arbitrary("LOCK").Keys("l").Build()).Error(); err != nil {
		t.Error(err)
	}
}

func TestInteropRueidis(t *testing.T) {
	t.Parallel()
	_, p := startInterop(t)
	harness.Protocols(t, func(t *testing.T, proto int) {
		// One address and nothing else: rueidis first looks for a cluster, and takes the error for an answer.
		c := newRueidis(t, rueidis.ClientOption{InitAddress: []string{p.Addr()}, DisableCache: true, AlwaysRESP2: proto == 2})
		if mode := c.Mode(); mode != rueidis.ClientModeStandalone {
			t.Errorf("mode %v", mode)
		}
		ctx := context.Background()
		t.Run("types", func(t *testing.T) { rueidisTypes(t, c) })
		t.Run("large", func(t *testing.T) {
			for _, n := range sizes {
				value := strings.Repeat("x", n)
				if err := c.Do(ctx, c.B().Set().Key("large").Value(value).Build()).Error(); err != nil {
					t.Fatal(n, err)
				}
				if got, err := c.Do(ctx, c.B().Get().Key("large").Build()).ToString(); err != nil || got != value {
					t.Errorf("%d bytes: got %d, %v", n, len(got), err)
				}
			}
		})
		t.Run("goroutines", func(t *testing.T) {
			harness.Together(100, func(worker int) {
				for i := range 100 {
					key := fmt.Sprintf("g:%d:%d", worker, i)
					results := c.DoMulti(ctx, c.B().Set().Key(key).Value(key).ExSeconds(60).Build(), c.B().Get().Key(key).Build())
					if got, err := results[1].ToString(); err != nil || got != key {
						t.Errorf("%s: %q %v", key, got, err)
						return
					}
				}
			})
		})
		rueidisLibrary(c).locks(t)
	})
}

func rueidisTypes(t *testing.T, c rueidis.Client) {
	ctx := context.Background()
	if err := c.Do(ctx, c.B().Flushdb().Build()).Error(); err != nil {
		t.Fatal(err)
	}
	if err := c.Do(ctx, c.B().Get().Key("nothing").Build()).Error(); !rueidis.IsRedisNil(err) {
		t.Errorf("GET nothing: %v", err)
	}
	c.Do(ctx, c.B().Hset().Key("h").FieldValue().FieldValue("a", "1").FieldValue("b", "2").Build())
	if got, err := c.Do(ctx, c.B().Hgetall().Key("h").Build()).AsStrMap(); err != nil || got["b"] != "2" || len(got) != 2 {
		t.Errorf("HGETALL: %v %v", got, err)
	}
	c.Do(ctx, c.B().Zadd().Key("z").ScoreMember().ScoreMember(1.5, "m").ScoreMember(-2, "n").Build())
	if got, err := c.Do(ctx, c.B().Zrange().Key("z").Min("0").Max("-1").Withscores().Build()).AsZScores(); err != nil || len(got) != 2 || got[1].Score != 1.5 {
		t.Errorf("ZRANGE: %v %v", got, err)
	}
	c.Do(ctx, c.B().Xadd().Key("x").Id("*").FieldValue().FieldValue("k", "v").Build())
	if got, err := c.Do(ctx, c.B().Xread().Streams().Key("x").Id("0").Build()).AsXRead(); err != nil || len(got["x"]) != 1 {
		t.Errorf("XREAD: %v %v", got, err)
	}
	var many rueidis.Commands
	for i := range 2000 {
		many = append(many, c.B().Set().Key(fmt.Sprintf("p:%d", i)).Value("v").Build())
	}
	for i, r := range c.DoMulti(ctx, many...) {
		if err := r.Error(); err != nil {
			t.Fatal(i, err)
		}
	}
	found := 0
	for cursor := uint64(0); ; {
		entry, err := c.Do(ctx, c.B().Scan().Cursor(cursor).Match("p:*").Count(100).Build()).AsScanEntry()
		if err != nil {
			t.Fatal(err)
		}
		found += len(entry.Elements)
		if cursor = entry.Cursor; cursor == 0 {
			break
		}
	}
	if found != 2000 {
		t.Errorf("SCAN found %d of 2000", found)
	}
	script := rueidis.NewLuaScript("return {KEYS[1], ARGV[1]}") // EVALSHA, NOSCRIPT, EVAL, EVALSHA
	for range 3 {
		if got, err := script.Exec(ctx, c, []string{"k"}, []string{"a"}).AsStrSlice(); err != nil || strings.Join(got, " ") != "k a" {
			t.Errorf("script: %v %v", got, err)
		}
	}
	table, err := c.Do(ctx, c.B().Command().Build()).ToArray()
	if err != nil || len(table) < 200 {
		t.Errorf("COMMAND: %d entries, %v", len(table), err)
	}
	if got, err := c.Do(ctx, c.B().Info().Build()).ToString(); err != nil || !strings.Contains(got, "# Lockproxy\r\n") {
		t.Errorf("INFO: %v", err)
	}
}

// A BLOCK longer than the caller's context: rueidis drops the connection, and the wait ends with it. Commands of other
// goroutines are not held up by a wait.
func TestInteropRueidisGivesUp(t *testing.T) {
	t.Parallel()
	_, p := startInterop(t)
	holder := harness.Dial(t, p.Addr())
	holder.Do("LOCK", "busy")
	c := newRueidis(t, rueidis.ClientOption{InitAddress: []string{p.Addr()}, DisableCache: true})
	waited := make(chan error, 1)
	go waitForLock(c, waited)
	harness.Eventually(t, "it waits", func() bool {
		select {
		case err := <-waited: // its time was over before it was seen
			if err == nil {
				t.Fatal("LOCK did not fail")
			}
			go waitForLock(c, waited)
		default:
		}
		return strings.Contains(holder.Do("INFO", "lockproxy"), "lockproxy_locks_waiting:1\r\n")
	})
	if err := c.Do(context.Background(), c.B().Set().Key("meanwhile").Value("v").Build()).Error(); err != nil {
		t.Error(err)
	}
	if err := <-waited; err == nil {
		t.Error("LOCK did not fail")
	}
	givenUp(t, p, holder, "busy")
}

// waitForLock waits for 2 s.
func waitForLock(c rueidis.Client, done chan<- error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err := rueidisLibrary(c).do(ctx, "LOCK", "busy", "OWNER", "late", "EX", "30", "BLOCK", "60000")
	done <- err
}
