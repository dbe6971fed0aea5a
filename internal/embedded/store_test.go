package embedded

import (
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

func startStore(t *testing.T) *Store {
	t.Helper()
	store, err := Start(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// dialEmbedded is a connection to an embedded store of its own.
func dialEmbedded(t *testing.T) redis.Conn {
	t.Helper()
	store := startStore(t)
	c, err := redis.Dial("tcp", store.redis.Addr(), redis.DialReadTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Commands alone move the clock: a key's time runs out while nobody asks, and a script that takes longer than a tick
// comes to its end.
func TestCommandsMoveTheClock(t *testing.T) {
	t.Parallel()
	c := dialEmbedded(t)
	if _, err := c.Do("SET", "k", "v", "PX", 20); err != nil {
		t.Fatal(err)
	}
	// On a busy machine a tick takes long, and the clock then rests longer.
	for patience := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		v, err := c.Do("GET", "k")
		if err != nil {
			t.Fatal(err)
		}
		if v == nil {
			break
		}
		if time.Now().After(patience) {
			t.Fatalf("a key whose time is over is still there a minute later: %q", v)
		}
	}
	const ticks = `local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end
		local began = now() while now() < began + 30000 do end return 'end'`
	if v, err := redis.String(c.Do("EVAL", ticks, 0)); v != "end" || err != nil {
		t.Errorf("a script of three ticks: %q, %v", v, err)
	}
}

// PEXPIRETIME says what PEXPIREAT has set, however often the clock was moved since: by that a grant is known again.
func TestExpiryIsWhatWasSet(t *testing.T) {
	t.Parallel()
	c := dialEmbedded(t)
	for range 100 {
		const set = `local t = redis.call('TIME') local at = t[1] * 1000 + math.floor(t[2] / 1000) + 90000
			redis.call('SET', KEYS[1], '') redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', at)) return string.format('%.0f', at)`
		at, err := redis.Int64(c.Do("EVAL", set, 1, "k"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		if got, err := redis.Int64(c.Do("PEXPIRETIME", "k")); got != at || err != nil {
			t.Fatalf("%d, %v, not %d", got, err, at)
		}
	}
}

// With few keys the clock is moved so often that a key hardly pays for the time before it was set.
func TestKeysEndNoEarlier(t *testing.T) {
	t.Parallel()
	const pause, lease = 10 * time.Millisecond, time.Second
	c := dialEmbedded(t)
	do := func(words ...any) int64 {
		n, err := redis.Int64(c.Do(words[0].(string), words[1:]...))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for patience := time.Now().Add(time.Minute); ; {
		time.Sleep(2 * pause)
		moved := time.Now()
		do("EXISTS", "k")
		time.Sleep(pause * 8 / 10)
		set := time.Now()
		do("HSET", "k", "f", "v")
		do("PEXPIRE", "k", lease.Milliseconds())
		inTime := time.Since(moved) < pause // else it says nothing of a clock that rests for so long
		time.Sleep(2 * pause)
		left := time.Duration(do("PTTL", "k")) * time.Millisecond
		early := lease - left - time.Since(set)
		if inTime && early < pause/4 {
			return
		}
		if time.Now().After(patience) { // on a busy machine a tick takes long, and so does the clock's rest
			t.Fatalf("a key would end %v early", early)
		}
	}
}

// However many keys there are, the clock leaves clients time.
func TestClockLeavesTime(t *testing.T) {
	t.Parallel()
	store := startStore(t)
	for i := range 20000 {
		store.redis.HSet(strconv.Itoa(i), "f", "v")
	}
	for patience := time.Now().Add(time.Minute); ; {
		time.Sleep(time.Until(store.began.Add(time.Duration(store.next.Load())))) // it rests before
		began := time.Now()
		store.redis.FastForward(0)
		took := time.Since(began)
		moved := time.Now()
		store.moveClock()
		rest := store.began.Add(time.Duration(store.next.Load())).Sub(moved)
		if rest >= took*clockRest/2 {
			return
		}
		if time.Now().After(patience) { // on a busy machine one tick may take several times as long as the next
			t.Fatalf("%v after a tick of %v or more", rest, took)
		}
	}
}
