package testredis

import (
	"strconv"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A server's TIME, TTLs and uptime go by its own clock.
func TestClock(t *testing.T) {
	t.Parallel()
	c, err := NewClock(t, 500_000) // half as fast again
	if err != nil {
		t.Skip("*** CLOCKS NOT TESTED:", err)
	}
	s := StartWithClock(t, c)
	at := func() time.Duration {
		parts := s.Do(t, "TIME").([]any)
		sec, _ := strconv.ParseInt(string(parts[0].([]byte)), 10, 64)
		micro, _ := strconv.ParseInt(string(parts[1].([]byte)), 10, 64)
		return time.Duration(sec)*time.Second + time.Duration(micro)*time.Microsecond
	}
	set := time.Now()
	s.Do(t, "SET", "k", "1", "PX", 100_000)
	before := time.Now()
	from := at()
	asked := time.Now()
	time.Sleep(2 * time.Second)
	least := time.Since(asked)
	gone := at() - from
	most := time.Since(before)
	if gone < least*13/10 || gone > most*17/10 {
		t.Errorf("%v went by for it in %v to %v", gone, least, most)
	}
	ttl := time.Duration(s.Do(t, "PTTL", "k").(int64)) * time.Millisecond
	// Redis counts TTLs by whole milliseconds of its clock: less than one may be missing.
	if lost := 100*time.Second - ttl; lost <= gone-time.Millisecond || lost > time.Since(set)*17/10 {
		t.Errorf("a TTL lost %v when %v went by", lost, gone)
	}
	c.Step(time.Hour)
	if gone := at() - from; gone < time.Hour {
		t.Error("not set forward:", gone)
	}
	if n := s.Do(t, "EXISTS", "k").(int64); n != 0 {
		t.Error("it outlived its TTL")
	}
}

func TestProxyBlackHole(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := NewProxy(t, s.Addr())
	dial := func() redis.Conn {
		c, err := redis.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	old := dial()
	if _, err := old.Do("PING"); err != nil {
		t.Fatal(err)
	}
	p.BlackHole()
	for _, c := range []redis.Conn{old, dial()} {
		if _, err := redis.DoWithTimeout(c, 2*time.Second, "INCR", "n"); err == nil { // long enough that the hole has it before it is closed
			t.Error("answered")
		}
	}
	p.Clear()
	if n, err := redis.Int(dial().Do("INCR", "n")); n != 1 || err != nil {
		t.Error(n, err)
	}
}
