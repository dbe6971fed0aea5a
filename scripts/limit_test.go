package scripts_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/scripts"
)

const ends = "{k}:timeout"

var limitKeys = []string{"k", "redisson_sc:{k}"}

func limitAcquire(t *testing.T, s *testredis.Server, owner string, count any, lease, limit int) string {
	t.Helper()
	return run(t, s, scripts.LimitAcquire, limitKeys, owner, count, lease, soon, limit, "PUBLISH", "", 0)
}

func limitRelease(t *testing.T, s *testredis.Server, owner string, count int, expiry any) string {
	t.Helper()
	return run(t, s, scripts.LimitRelease, limitKeys, owner, count, soon, expiry, "PUBLISH", "")
}

// granted wants the reply of a grant that has made the hold, for a lease of so many ms, of which a few may have passed, after which so many places are left.
func granted(t *testing.T, reply string, lease, left int64) {
	t.Helper()
	if out := numbers(t, reply); out[0] != 1 || out[1] != 1 || out[2] > lease || out[2] < lease-5 || out[3] != left {
		t.Fatalf("got %s, want a lease of %d ms, and %d places left", reply, lease, left)
	}
}

func TestLimit(t *testing.T) {
	s := testredis.Start(t)
	want(t, run(t, s, scripts.LimitAcquire, limitKeys, "me", 1, 1000, late, 2, "PUBLISH", "", 0), "[-2 0 0 0 0]")
	want(t, contents(t, s), "")
	granted(t, limitAcquire(t, s, "me", 1, 60000, 2), 60000, 1)
	for range 2 { // sent again it is the same place
		want(t, limitAcquire(t, s, "me", 2, 90000, 2)[:5], "[1 0 ")
	}
	if reply := numbers(t, limitAcquire(t, s, "me", 3, 1000, 2)); reply[2] < 80000 {
		t.Fatal("a lease became shorter", reply)
	}
	want(t, limitAcquire(t, s, "gone", 2, 1000, 2), "[-6 0 0 0 0]")
	want(t, limitAcquire(t, s, "you", "lengthen", 30000, 2)[:5], "[1 1 ")
	want(t, limitAcquire(t, s, "third", 1, 1000, 2)[:5], "[0 0 ")
	want(t, limitAcquire(t, s, "third", 1, 60000, 3)[:5], "[1 1 ")
	want(t, fmt.Sprintf("%s", s.Do(t, "GET", "k")), "0")
	want(t, limitAcquire(t, s, "fourth", 1, 1000, 1)[:5], "[0 0 ") // the limit was lowered: what is left goes by whoever asks
	want(t, fmt.Sprintf("%s", s.Do(t, "GET", "k")), "-2")
	want(t, limitRelease(t, s, "me", 2, ""), "0")
	for _, owner := range []string{"me", "you", "third"} {
		want(t, limitRelease(t, s, owner, 0, ""), "1")
		want(t, limitRelease(t, s, owner, 0, ""), "-1")
	}
	want(t, contents(t, s), "")
	s.Do(t, "HSET", "k", "you", "1")
	want(t, limitAcquire(t, s, "me", 1, 1000, 2), "[-3 0 0 0 0]")
	want(t, limitRelease(t, s, "me", 0, ""), "-3")
	want(t, run(t, s, scripts.LimitForce, limitKeys, "PUBLISH", soon), "-3")
	want(t, run(t, s, scripts.LimitExtend, limitKeys, "me", 1000, soon, "set", ""), "[-3 0 0]")
	for _, value := range []string{"x", "1.5", "12345678901234567890123"} {
		s.Do(t, "SET", "k", value)
		want(t, limitAcquire(t, s, "me", 1, 1000, 2), "ERR value is not an integer or out of range")
	}
	s.Do(t, "DEL", "k")
	s.Do(t, "LPUSH", "k", "x")
	want(t, limitAcquire(t, s, "me", 1, 1000, 2), wrongType)
	want(t, limitRelease(t, s, "me", 0, ""), wrongType)
	want(t, contents(t, s), "k")
}

// TestLimitOfRedissons: a semaphore that trySetPermits has made keeps no expiry, and stays when its last place is given back; a permit of
// Redisson's without an end counts.
func TestLimitOfRedissons(t *testing.T) {
	s := testredis.Start(t)
	s.Do(t, "SET", "k", "1")
	s.Do(t, "ZADD", ends, "922337203685477", "\x01\x02\xff4567890123456")
	granted(t, limitAcquire(t, s, "me", 1, 60000, 2), 60000, 0)
	want(t, limitAcquire(t, s, "you", 1, 60000, 2)[:5], "[0 0 ")
	want(t, limitRelease(t, s, "me", 0, ""), "1")
	s.Do(t, "ZREM", ends, "\x01\x02\xff4567890123456")
	s.Do(t, "INCR", "k")
	granted(t, limitAcquire(t, s, "me", 1, 60000, 2), 60000, 1)
	want(t, limitRelease(t, s, "me", 0, ""), "1")
	want(t, fmt.Sprintf("%s", s.Do(t, "GET", "k")), "2")
	want(t, fmt.Sprint(s.Do(t, "PTTL", "k")), "-1")

	// One that lockproxy has made lasts for as long as Redisson's permit there.
	s.Do(t, "DEL", "k")
	limitAcquire(t, s, "me", 1, 60000, 2)
	s.Do(t, "ZADD", ends, "922337203685477", "forever")
	want(t, run(t, s, scripts.LimitRenew, []string{"k"}, soon, "me", 61000), "[1]")
	for _, key := range []string{"k", ends} {
		if left := s.Do(t, "PTTL", key).(int64); left < 1e12 {
			t.Fatal(key, left)
		}
	}
}

// TestLimitTakesOutTheDead: what has ended is taken out a hundred at a time, counts for nobody from when it ends on, and whoever frees places so
// tells others of those that are left.
func TestLimitTakesOutTheDead(t *testing.T) {
	s := testredis.Start(t)
	past := time.Now().Add(-time.Second).UnixMilli()
	s.Do(t, "SET", "k", "-230")
	for i := range 230 {
		s.Do(t, "ZADD", ends, past, fmt.Sprint("dead", i))
	}
	heard := s.Dial(t)
	if _, err := heard.Do("SUBSCRIBE", limitKeys[1]); err != nil {
		t.Fatal(err)
	}
	granted(t, limitAcquire(t, s, "me", 1, 60000, 2), 60000, 1)
	want(t, fmt.Sprint(s.Do(t, "ZCARD", ends)), "131")
	want(t, fmt.Sprintf("%s", s.Do(t, "GET", "k")), "1")
	message, err := redis.Values(heard.Receive())
	if err != nil || fmt.Sprintf("%s", message[2]) != "1" {
		t.Fatal(message, err)
	}
	want(t, limitRelease(t, s, "dead229", 0, ""), "-1")
	want(t, run(t, s, scripts.LimitExtend, limitKeys, "dead228", 1000, soon, "set", ""), "[-1 0 0]")
	want(t, run(t, s, scripts.LimitRenew, []string{"k", "k"}, soon, "dead228", 1000, "me", 70000), "[0 1]")
	want(t, run(t, s, scripts.Look, []string{"k"}, "me", "me", "{k}", "me"), "[0 0 0 1]")
	want(t, run(t, s, scripts.Look, []string{"k"}, "me", "me", "{k}", "dead228"), "[0 0 0 0]")
}

// TestLimitFull: no step that keeps a place, or gives one back, fails because Redis is full.
func TestLimitFull(t *testing.T) {
	s := testredis.Start(t)
	limitAcquire(t, s, "me", 1, 60000, 2)
	limitAcquire(t, s, "you", "lengthen", 60000, 2)
	s.Do(t, "CONFIG", "SET", "maxmemory", "1")
	want(t, run(t, s, scripts.LimitRenew, []string{"k"}, soon, "me", 70000), "[1]")
	want(t, limitAcquire(t, s, "me", 2, 80000, 2)[:5], "[1 0 ")
	want(t, limitAcquire(t, s, "you", "lengthen", 80000, 2)[:5], "[1 0 ")
	want(t, run(t, s, scripts.LimitExtend, limitKeys, "you", 90000, soon, "renew", "")[:3], "[1 ")
	want(t, limitRelease(t, s, "me", 0, ""), "1")
	want(t, limitRelease(t, s, "you", 0, ""), "1")
	want(t, contents(t, s), "")
}

// TestLimitModel: whatever comes in whatever order, the places are those of a model: never more than so many, nobody refused beside a free one,
// the number that is left as Redisson counts it, and nothing in Redis when nobody has a place.
func TestLimitModel(t *testing.T) {
	s := testredis.Start(t)
	seed := rand.Uint64()
	dice := rand.New(rand.NewPCG(seed, 1))
	t.Log("seed", seed)
	has := map[string]int64{} // owner → what its expiry was when it was made, 0: of a connection, or joined
	limit := 3
	for step := range 3000 {
		owner := strconv.Itoa(dice.IntN(6))
		if dice.IntN(40) == 0 {
			limit = 1 + dice.IntN(4)
		}
		made, there := has[owner]
		switch dice.IntN(7) {
		case 0, 1:
			count := []any{1, 2, "lengthen", "join"}[dice.IntN(4)]
			out := numbers(t, limitAcquire(t, s, owner, count, 60000, limit))
			code := int64(1)
			switch {
			case count == 2 && !there:
				code = -6
			case !there && len(has) >= limit:
				code = 0
			}
			if out[0] != code || code == 1 && (out[1] == 0) != there {
				t.Fatal(step, owner, count, limit, has, out)
			}
			if code == 1 {
				if has[owner] = 0; !there && out[4]%2 == 0 {
					has[owner] = out[4]
				}
				if left := int64(limit - len(has)); out[3] != left {
					t.Fatal(step, "left", out, left)
				}
			}
		case 2:
			code := "-1"
			if there {
				code = "1"
			}
			want(t, limitRelease(t, s, owner, 0, ""), code)
			if delete(has, owner); there && s.Do(t, "ZCARD", ends).(int64) == 0 {
				want(t, contents(t, s), "")
			}
		case 3: // given back without the owner's asking
			expiry := made
			if made == 0 {
				expiry = 2
			}
			code := "-1"
			if there && made != 0 {
				code = "1"
				delete(has, owner)
			}
			want(t, limitRelease(t, s, owner, 0, expiry), code)
		case 4:
			code := int64(-1)
			if there {
				code, has[owner] = 1, 0
			}
			if out := numbers(t, run(t, s, scripts.LimitExtend, limitKeys, owner, 60000, soon, "renew", "")); out[0] != code {
				t.Fatal(step, owner, has, out)
			}
		case 5: // its lease is over
			s.Do(t, "ZADD", ends, "XX", 1, owner)
			delete(has, owner)
		case 6: // as seldom as it happens that all leases are over
			if dice.IntN(5) > 0 {
				break
			}
			for _, ended := range []string{owner, strconv.Itoa(dice.IntN(6))} {
				s.Do(t, "ZADD", ends, "XX", 1, ended)
				delete(has, ended)
			}
			code := "0"
			if len(has) > 0 {
				code = "1"
			}
			want(t, run(t, s, scripts.LimitForce, limitKeys, "PUBLISH", soon), code)
			clear(has)
			want(t, contents(t, s), "")
		}
		owners, err := redis.Strings(s.Do(t, "ZRANGEBYSCORE", ends, "2", "+inf"), nil)
		if slices.Sort(owners); err != nil || !slices.Equal(owners, slices.Sorted(maps.Keys(has))) {
			t.Fatal(step, owners, has, err)
		}
	}
}
