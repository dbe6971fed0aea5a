package scripts_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/scripts"
)

const (
	channel = "redisson_lock__channel:{k}"
	token   = "redisson_lock_token:{k}"
	watch   = "lockproxy_watch:{k}:me"
)

// plain are the KEYS of a script that takes or frees a plain lock; more follow.
func plain(lock string, more ...string) []string {
	return append([]string{lock, "redisson_lock_queue:{k}"}, more...)
}

var late, soon = "1", strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10)

// run sends a script and gives its reply as text: "[1 1 30000 0]", or the error.
func run(t *testing.T, s *testredis.Server, script *scripts.Script, keys []string, args ...any) string {
	t.Helper()
	all := []any{script.Source, len(keys)}
	for _, k := range keys {
		all = append(all, k)
	}
	reply, err := s.Dial(t).Do("EVAL", append(all, args...)...)
	if err != nil {
		line, _, _ := strings.Cut(err.Error(), " script:")
		return line
	}
	if list, ok := reply.([]any); ok {
		for i := range list {
			if b, ok := list[i].([]byte); ok {
				list[i] = string(b)
			}
		}
	}
	return fmt.Sprint(reply)
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}

// keys lists what is in Redis, so that "changed nothing" can be seen.
func contents(t *testing.T, s *testredis.Server) string {
	t.Helper()
	all, err := redis.Strings(s.Do(t, "KEYS", "*"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func TestAcquire(t *testing.T) {
	s := testredis.Start(t)
	one := plain("k")
	want(t, run(t, s, scripts.Acquire, one, 1000, "me", late, "N", "PUBLISH"), "-2")
	want(t, contents(t, s), "")
	want(t, run(t, s, scripts.Acquire, one, 60000, "me", soon, "N", "PUBLISH"), "1")
	want(t, run(t, s, scripts.Acquire, one, 90000, "me", soon, "", "PUBLISH"), "2")
	want(t, run(t, s, scripts.Acquire, one, 90000, "me", soon, "O", "PUBLISH"), "[1 2 90000 0 0]")
	if reply := run(t, s, scripts.Acquire, one, 1000, "you", soon, "", "PUBLISH"); !strings.HasPrefix(reply, "[0 0 ") {
		t.Fatal(reply)
	}
	s.Do(t, "HSET", "rw", "mode", "read", "me", "1")
	want(t, run(t, s, scripts.Acquire, plain("rw"), 1000, "me", soon, "", "PUBLISH"), "[-3 0 0 0]")
	s.Do(t, "SET", "string", "x")
	want(t, run(t, s, scripts.Acquire, plain("string"), 1000, "me", soon, "", "PUBLISH"),
		"WRONGTYPE Operation against a key holding the wrong kind of value")
}

// TestReentryMakesNoHold: a connection that enters a hold again which has gone is given none in its place, whoever else has the lock or waits
// for it; if the reply were lost, the count that Redis has then could be the old one.
func TestReentryMakesNoHold(t *testing.T) {
	s := testredis.Start(t)
	readers := [][]any{{"HSET", "k", "mode", "read", "you", 1}, {"SET", holdsOf("you") + ":1", 1, "PX", 60000}}
	queue := func(first string) [][]any {
		return [][]any{{"RPUSH", "redisson_lock_queue:{k}", first}, {"ZADD", "redisson_lock_timeout:{k}", 9e12, first}}
	}
	acquire := func(letters string) string {
		return run(t, s, scripts.Acquire, plain("k", token), 60000, "me", soon, letters, "PUBLISH", "", 0, 300000, 0)
	}
	read := func(letters string) string {
		return run(t, s, scripts.ReadAcquire, []string{"k", holdsOf("me")}, 60000, "me", soon, letters, "", 0, "me:write", "{k}")
	}
	write := func(letters string) string {
		return run(t, s, scripts.WriteAcquire, []string{"k", token}, 60000, "me:write", soon, letters, "", 0, "me", "{k}")
	}
	for _, c := range []struct {
		step    func(letters string) string
		letters []string
		state   [][]any
	}{
		{acquire, []string{"", "F", "E", "FE"}, nil},
		{acquire, []string{"", "F", "E"}, queue("me")},
		{acquire, []string{"", "F", "E"}, queue("you")},
		{acquire, []string{"", "F"}, [][]any{{"HSET", "k", "me", "x"}}},
		{read, []string{"", "M"}, nil},
		{read, []string{"", "M"}, readers},
		{read, []string{"", "M"}, append(readers, []any{"HSET", "k", "me", 2})}, // the lease of its holds is over
		{read, []string{""}, [][]any{{"HSET", "k", "mode", "write", "me:write", 1}}},
		{write, []string{"", "M", "F"}, nil},
		{write, []string{"", "M"}, [][]any{{"HSET", "k", "mode", "write", "me:write", "x"}}},
	} {
		for _, letters := range c.letters {
			s.Do(t, "FLUSHALL")
			for _, command := range c.state {
				s.Do(t, command...)
			}
			before := contents(t, s)
			if got := c.step(letters); got != "[-6 0 0 0]" {
				t.Errorf("%q, %v: %s", letters, c.state, got)
			}
			want(t, contents(t, s), before)
		}
	}
}

func TestAcquireSideKeys(t *testing.T) {
	s := testredis.Start(t)
	run(t, s, scripts.Acquire, plain("k", token, watch), 60000, "me", soon, "FW", "PUBLISH", "reg-1", 0)
	first, _ := redis.Int64(s.Do(t, "GET", token), nil)
	if now := time.Now().UnixMicro(); first > now || first < now-int64(time.Minute/time.Microsecond) {
		t.Fatal(first)
	}
	if ttl := s.Do(t, "PTTL", token).(int64); ttl != -1 {
		t.Fatal("the token expires")
	}
	registration, _ := redis.String(s.Do(t, "GET", watch), nil)
	want(t, registration, "reg-1")

	s.Do(t, "SET", token, first+1e6)
	run(t, s, scripts.Acquire, plain("k", token, watch), 60000, "me", soon, "FOW", "PUBLISH", "reg-2", 0)
	if again, _ := redis.Int64(s.Do(t, "GET", token), nil); again != first+1e6+1 {
		t.Fatal("a named owner that has the lock got the token of before", again)
	}
	run(t, s, scripts.Acquire, plain("k", token), 60000, "me", soon, "F", "PUBLISH", "", 0)
	next, _ := redis.Int64(s.Do(t, "GET", token), nil)
	if next != first+1e6+2 {
		t.Fatal(next)
	}
	s.Do(t, "DEL", "k")
	s.Do(t, "SET", token, "x")
	before := contents(t, s)
	want(t, run(t, s, scripts.Acquire, plain("k", token), 60000, "me", soon, "FN", "PUBLISH", "", 0),
		"ERR the fencing token of this lock is not an integer below 2^53")
	want(t, contents(t, s), before)
}

// TestRegistration: a registration has no plus while only the proxy that made the hold has said LOCK. That of another LOCK leaves the first
// one's name, unless its proxy renews the hold from then on.
func TestRegistration(t *testing.T) {
	s := testredis.Start(t)
	acquire := func(letter, registration, after string) {
		t.Helper()
		run(t, s, scripts.Acquire, plain("k", watch), 60000, "me", soon, "O"+letter, "PUBLISH", registration, 0)
		got, _ := redis.String(s.Do(t, "GET", watch), nil)
		want(t, got, after)
		if ttl := s.Do(t, "PTTL", watch).(int64); got != "" && (ttl <= 0 || ttl > 60000) {
			t.Fatal(ttl)
		}
	}
	for _, first := range []struct{ letter, name string }{{"W", "one"}, {"D", "-one"}} {
		acquire(first.letter, first.name, first.name)
		acquire(first.letter, first.name, first.name) // sent again
		acquire("W", "one", "one")                    // by the proxy that made the hold
		s.Do(t, "SET", watch, first.name, "PX", 60000)
		acquire("D", "-two", first.name+"+")
		acquire("D", "-three", first.name+"+")
		acquire("W", "four", "four+")
		s.Do(t, "DEL", "k")
		acquire(first.letter, "-five", "-five~") // who has four is to learn that it ended
		acquire(first.letter, "-five", "-five~")
		acquire("W", "five", "five~")
		acquire("D", "-six", "five+")
		acquire("W", "five", "five+")
		s.Do(t, "DEL", "k", watch)
		s.Do(t, "HSET", "k", "me", "1")
		acquire("D", "-six", "+")
		s.Do(t, "DEL", watch)
		acquire("W", "seven", "seven+")
		s.Do(t, "DEL", "k", watch)
		acquire("D", "", "") // on a node of a quorum
		s.Do(t, "DEL", "k", watch)
	}
}

func TestRelease(t *testing.T) {
	s := testredis.Start(t)
	keys := plain("k")
	want(t, run(t, s, scripts.Release, keys, "me", "PUBLISH", soon, "", ""), "[-1 0]")
	s.Do(t, "HSET", "k", "me", "3")
	s.Do(t, "SET", watch, "reg")
	want(t, run(t, s, scripts.Release, keys, "me", "PUBLISH", late, "", ""), "-2")
	want(t, run(t, s, scripts.Release, keys, "me", "PUBLISH", soon, "", ""), "3")
	want(t, run(t, s, scripts.Release, keys, "you", "PUBLISH", soon, "A", ""), "[-1 0]")
	for _, known := range []string{"another", ""} {
		want(t, run(t, s, scripts.Release, append(keys, watch), "me", "PUBLISH", soon, "AWX", known), "[-1 1]")
	}
	s.Do(t, "SET", watch, "reg+")
	want(t, run(t, s, scripts.Release, append(keys, watch), "me", "PUBLISH", soon, "AWX", "reg"), "[-1 1]")
	want(t, run(t, s, scripts.Release, append(keys, watch), "me", "PUBLISH", soon, "AW", "reg"), "[1 0]")
	want(t, contents(t, s), watch) // emptied, for the one whose place it took
	for registration, left := range map[string]string{"reg": "", "reg~": watch} {
		s.Do(t, "SET", watch, registration)
		s.Do(t, "HSET", "k", "me", "1")
		want(t, run(t, s, scripts.Release, append(keys, watch), "me", "PUBLISH", soon, "AWX", "reg"), "[1 0]")
		want(t, contents(t, s), left)
		s.Do(t, "DEL", watch)
	}
	s.Do(t, "HSET", "k", "mode", "write", "me:write", "1")
	want(t, run(t, s, scripts.Release, keys, "me", "PUBLISH", soon, "", ""), "[-3 0]")
}

// TestEmptyRegistrationEnds: an owner that takes and frees a lock again and again does not keep an empty registration for ever longer.
func TestEmptyRegistrationEnds(t *testing.T) {
	s := testredis.Start(t)
	s.Do(t, "SET", watch, "", "PX", 30000)
	for i := range 10 {
		name := fmt.Sprint("lock", i)
		run(t, s, scripts.Acquire, plain("k", watch), 30000, "me", soon, "W", "PUBLISH", name, 0)
		for range 2 { // said again it changes nothing
			run(t, s, scripts.Release, plain("k", watch), "me", "PUBLISH", soon, "AW", name)
		}
		if ttl := s.Do(t, "PTTL", watch).(int64); ttl <= 30000 || ttl > 32000 {
			t.Fatalf("after %d rounds it lasts for %d ms", i+1, ttl)
		}
	}
}

func TestReleaseHalfPermittedChangesNothing(t *testing.T) {
	s := testredis.Start(t)
	s.Do(t, "ACL", "SETUSER", "mute", "on", ">p", "~*", "resetchannels", "+@all")
	s.Do(t, "HSET", "k", "me", "1")
	conn := s.Dial(t)
	if _, err := conn.Do("AUTH", "mute", "p"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Do("EVAL", scripts.Release.Source, 2, "k", "redisson_lock_queue:{k}", "me", "PUBLISH", soon, "", ""); err == nil {
		t.Fatal("published without permission")
	}
	if s.Do(t, "EXISTS", "k").(int64) != 1 {
		t.Fatal("deleted without a message")
	}
}

// TestEndIsToldToTheRegistered: a hold that ends through another connection leaves its registration empty, so that the
// proxy whose registration it was does not take it for lost; FLUSHALL leaves nothing, and is a loss.
func TestEndIsToldToTheRegistered(t *testing.T) {
	s := testredis.Start(t)
	acquire := func(registration string) {
		run(t, s, scripts.Acquire, plain("k", watch), 60000, "me", soon, "W", "PUBLISH", registration, 0)
	}
	release := func(registration string) string {
		return run(t, s, scripts.Release, plain("k", watch), "me", "PUBLISH", soon, "AW", registration)
	}
	renew := func(registration string) string {
		return run(t, s, scripts.Renew, []string{"k", watch}, 60000, soon, "me", registration)
	}
	acquire("one")
	want(t, release(""), "[1 0]")
	want(t, renew("one"), "[2]")
	want(t, release("one"), "[-1 1]")
	s.Do(t, "FLUSHALL")
	acquire("one")
	acquire("two")
	want(t, renew("one"), "[2]")
	want(t, renew("two"), "[1]")
	want(t, release("two"), "[1 0]")
	want(t, renew("one"), "[2]")
	s.Do(t, "FLUSHALL")
	acquire("one")
	s.Do(t, "DEL", "k")
	want(t, renew("one"), "0")
	s.Do(t, "FLUSHALL")
	want(t, renew("one"), "[0]")
	want(t, release("one"), "[-1 0]")
}

func TestForce(t *testing.T) {
	s := testredis.Start(t)
	keys := plain("k")
	want(t, run(t, s, scripts.Force, keys, "PUBLISH", soon), "0")
	s.Do(t, "HSET", "k", "anybody", "2")
	want(t, run(t, s, scripts.Force, keys, "PUBLISH", late), "-2")
	want(t, run(t, s, scripts.Force, keys, "PUBLISH", soon), "1")
	want(t, contents(t, s), "")
	s.Do(t, "HSET", "k", "name", "bob")
	want(t, run(t, s, scripts.Force, keys, "PUBLISH", soon), "-4")
	s.Do(t, "HSET", "k", "mode", "read")
	want(t, run(t, s, scripts.Force, keys, "PUBLISH", soon), "-3")
}

func TestRenew(t *testing.T) {
	s := testredis.Start(t)
	s.Do(t, "HSET", "a", "me", "1")
	s.Do(t, "PEXPIRE", "a", 100000)
	s.Do(t, "SET", "poison", "x")
	for _, key := range []string{"k", "b"} {
		s.Do(t, "HSET", key, "me", "1")
		s.Do(t, "PEXPIRE", key, 9000)
	}
	s.Do(t, "SET", watch, "reg", "PX", 9000)
	s.Do(t, "SET", "other", "else", "PX", 9000)
	keys := []string{"a", "poison", "gone", "k", watch, "b", "other"}
	args := []any{30000, soon, "---WW", "me", "me", "me", "me", "reg", "me", "reg"}
	want(t, run(t, s, scripts.Renew, keys, args...), "[1 0 0 1 2]")
	for key, least := range map[string]int64{"a": 31000, "k": 9001, watch: 9001} {
		if ttl := s.Do(t, "PTTL", key).(int64); ttl < least {
			t.Errorf("%s: %d ms left", key, ttl)
		}
	}
	if ttl := s.Do(t, "PTTL", "b").(int64); ttl > 9000 {
		t.Error("renewed what another connection has taken over")
	}
	args[1] = late
	want(t, run(t, s, scripts.Renew, keys, args...), "[-2]")
	s.Do(t, "PEXPIRE", "k", 9000)
	want(t, run(t, s, scripts.Renew, []string{"k"}, 0, soon, "me"), "[1]")
	if ttl := s.Do(t, "PTTL", "k").(int64); ttl > 9000 {
		t.Error("a look renewed")
	}
}

func TestExtend(t *testing.T) {
	s := testredis.Start(t)
	want(t, run(t, s, scripts.Extend, []string{"k"}, 60000, "me", soon, "", "", ""), "[-1 0 0]")
	s.Do(t, "HSET", "k", "me", "2")
	s.Do(t, "PEXPIRE", "k", 90000)
	want(t, run(t, s, scripts.Extend, []string{"k"}, 60000, "me", late, "", "", ""), "[-2 0 0]")
	if reply := run(t, s, scripts.Extend, []string{"k", watch}, 30000, "me", soon, "KW", "reg", ""); !strings.HasPrefix(reply, "[1 2 8") && !strings.HasPrefix(reply, "[1 2 90000") {
		t.Fatal(reply)
	}
	want(t, run(t, s, scripts.Extend, []string{"k", watch}, 60000, "me", soon, "W", "-reg", "reg"), "[1 2 60000]")
	want(t, string(s.Do(t, "GET", watch).([]byte)), "-reg")
	want(t, run(t, s, scripts.Extend, []string{"k", watch}, 60000, "me", soon, "W", "-mine", "reg"), "[1 2 60000]")
	want(t, string(s.Do(t, "GET", watch).([]byte)), "-mine+")
	// A key that follows and is no registration, as on a cluster, is left alone.
	s.Do(t, "SET", "guard", "")
	want(t, run(t, s, scripts.Extend, []string{"k", "guard"}, 60000, "me", soon, "", "", ""), "[1 2 60000]")
	want(t, run(t, s, scripts.Extend, []string{"k", "guard"}, 60000, "you", soon, "", "", ""), "[-1 0 0]")
	want(t, string(s.Do(t, "GET", "guard").([]byte)), "")
}

func TestLookAndInfo(t *testing.T) {
	s := testredis.Start(t)
	s.Do(t, "HSET", "k", "me", "2")
	s.Do(t, "SET", token, "42")
	s.Do(t, "RPUSH", "redisson_lock_queue:{k}", "a", "b")
	s.Do(t, "SET", watch, "reg")
	reply := run(t, s, scripts.Look, []string{"k", token, watch}, "me")
	clock, rest, _ := strings.Cut(strings.Trim(reply, "[]"), " ")
	want(t, rest, "2 -1 42 reg")
	if n, err := strconv.ParseInt(clock, 10, 64); err != nil || n < 1e15 {
		t.Fatal(clock)
	}
	want(t, run(t, s, scripts.Info, []string{"k", token, "redisson_lock_queue:{k}"}), "[hash -1 42 2 me 2]")
	want(t, run(t, s, scripts.Info, []string{token, "k", "none"}), "[string -1  0]")
}

// A token is only ever raised.
func TestRaise(t *testing.T) {
	s := testredis.Start(t)
	raise := func(token, notAfter, ttl string) string {
		return run(t, s, scripts.Raise, []string{"token"}, token, notAfter, ttl)
	}
	want(t, raise("5", soon, "0"), "[1]")
	want(t, raise("4", soon, "0"), "[1]")
	want(t, raise("9", late, "0"), "[-2]")
	want(t, string(s.Do(t, "GET", "token").([]byte)), "5")
	want(t, raise("9007199254740991", soon, "60000"), "[1]")
	want(t, string(s.Do(t, "GET", "token").([]byte)), "9007199254740991")
	if ttl := s.Do(t, "PTTL", "token").(int64); ttl < 1000 || ttl > 60000 {
		t.Error(ttl)
	}
}
