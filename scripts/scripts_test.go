package scripts_test

import (
	"fmt"
	"regexp"
	"slices"
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
	queue   = "redisson_lock_queue:{k}"
	token   = "redisson_lock_token:{k}"
)

const wrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"

// plain are the KEYS that the steps of a plain lock share.
func plain(lock string) []string { return []string{lock, queue, token} }

var late, soon = "1", strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10)

// run sends a script and returns its reply as text, as in "[1 1 30000 0 0]", or the error.
func run(t *testing.T, s *testredis.Server, script *scripts.Script, keys []string, args ...any) string {
	t.Helper()
	return eval(t, s.Dial(t), script, keys, args...)
}

// eval is run on a connection that stays.
func eval(t *testing.T, conn redis.Conn, script *scripts.Script, keys []string, args ...any) string {
	t.Helper()
	all := []any{script.Source, len(keys)}
	for _, k := range keys {
		all = append(all, k)
	}
	reply, err := conn.Do("EVAL", append(all, args...)...)
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

// numbers is a reply of integers only.
func numbers(t *testing.T, reply string) (all []int64) {
	t.Helper()
	for word := range strings.FieldsSeq(strings.Trim(reply, "[]")) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			t.Fatal(reply)
		}
		all = append(all, n)
	}
	return all
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}

// contents are the names of all keys in Redis.
func contents(t *testing.T, s *testredis.Server) string {
	t.Helper()
	all, err := redis.Strings(s.Do(t, "KEYS", "*"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

// acquire takes the plain lock for an owner that does not wait in the fair queue.
func acquire(t *testing.T, s *testredis.Server, lock, owner string, count any, lease int) string {
	t.Helper()
	return run(t, s, scripts.Acquire, plain(lock), owner, count, lease, soon, "", "", "PUBLISH", "", 0)
}

func release(t *testing.T, s *testredis.Server, owner string, count int, expiry any) string {
	t.Helper()
	return run(t, s, scripts.Release, plain("k"), owner, count, soon, expiry, "PUBLISH")
}

func TestAcquire(t *testing.T) {
	s := testredis.Start(t)
	want(t, run(t, s, scripts.Acquire, plain("k"), "me", 1, 1000, late, "", "", "PUBLISH", "", 0), "[-2 0 0 0 0]")
	want(t, contents(t, s), "")
	want(t, acquire(t, s, "k", "me", 1, 60000), "[1 1 60000 0 0]")
	for range 2 { // sent again it is the same count
		want(t, acquire(t, s, "k", "me", 2, 90000)[:5], "[1 0 ")
		want(t, fmt.Sprintf("%s", s.Do(t, "HGETALL", "k")), "[me 2]")
	}
	if reply := numbers(t, acquire(t, s, "k", "me", 3, 1000)); reply[2] < 30000 {
		t.Fatal("a lease became shorter", reply)
	}
	want(t, acquire(t, s, "k", "you", 1, 1000)[:5], "[0 0 ")
	s.Do(t, "HSET", "rw", "mode", "read", "me", "1")
	want(t, acquire(t, s, "rw", "me", 1, 1000), "[-3 0 0 0 0]")
	s.Do(t, "SET", "string", "x")
	want(t, acquire(t, s, "string", "me", 1, 1000), wrongType)
}

// TestReentryMakesNoHold: a connection that takes a hold once more which has gone gets none in its place, whoever else has the lock or waits
// for it.
func TestReentryMakesNoHold(t *testing.T) {
	s := testredis.Start(t)
	readers := [][]any{{"HSET", "k", "mode", "read", "you", 1}, {"SET", holdsOf("you") + ":1", 1, "PX", 60000}}
	waits := func(first string) [][]any {
		return [][]any{{"RPUSH", queue, first}, {"ZADD", "redisson_lock_timeout:{k}", 9e12, first}}
	}
	plainly := func(fence string) string {
		return run(t, s, scripts.Acquire, plain("k"), "me", 2, 60000, soon, fence, "", "PUBLISH", "", 0)
	}
	queued := func(fence string) string {
		return run(t, s, scripts.Acquire, plain("k"), "me", 2, 60000, soon, fence, 0, "PUBLISH", "", 0)
	}
	side := func(side string, reads, writes int) func(string) string {
		return func(fence string) string {
			return run(t, s, scripts.RWAcquire, rwKeys, "me", side, reads, writes, 60000, soon, fence, "{k}", "", 0, "PUBLISH")
		}
	}
	for i, c := range []struct {
		step  func(fence string) string
		state [][]any
	}{
		{plainly, nil}, {plainly, waits("me")}, {plainly, waits("you")}, {queued, nil}, {queued, waits("me")}, {queued, waits("you")},
		{plainly, [][]any{{"HSET", "k", "you", 1}}},
		{side("read", 2, 0), nil}, {side("read", 2, 0), readers},
		{side("read", 2, 0), append(readers, []any{"HSET", "k", "me", 2})}, // the lease of its holds is over
		{side("read", 2, 0), [][]any{{"HSET", "k", "mode", "write", "me:write", 1}}},
		{side("read", 1, 1), nil}, {side("read", 1, 1), readers},
		{side("write", 0, 2), nil}, {side("write", 0, 2), [][]any{{"HSET", "k", "mode", "write", "you:write", 1}}},
		{side("write", 1, 1), nil}, {side("write", 1, 2), [][]any{{"HSET", "k", "mode", "write", "me:write", 1}}},
	} {
		for _, fence := range []string{"", "1"} {
			s.Do(t, "FLUSHALL")
			for _, command := range c.state {
				s.Do(t, command...)
			}
			before := contents(t, s)
			if got := c.step(fence); got != "[-6 0 0 0 0]" {
				t.Errorf("%d, %v: %s", i, c.state, got)
			}
			want(t, contents(t, s), before)
		}
	}
}

// TestFence: each LOCK gets a higher token than all before, which is at least Redis' clock.
func TestFence(t *testing.T) {
	s := testredis.Start(t)
	fenced := func(owner string, count any) string {
		return run(t, s, scripts.Acquire, plain("k"), owner, count, 60000, soon, 1, "", "PUBLISH", "", 0)
	}
	first := numbers(t, fenced("me", "lengthen"))[3]
	if now := time.Now().UnixMicro(); first > now || first < now-int64(time.Minute/time.Microsecond) {
		t.Fatal(first)
	}
	if ttl := s.Do(t, "PTTL", token).(int64); ttl != -1 {
		t.Fatal("the token expires")
	}
	ahead := first + int64(time.Hour/time.Microsecond)
	s.Do(t, "SET", token, ahead)
	for i := range int64(2) { // a named owner that has the lock gets a higher one, too
		if next := numbers(t, fenced("me", "lengthen"))[3]; next != ahead+1+i {
			t.Fatal(next)
		}
	}
	want(t, fmt.Sprintf("%s", s.Do(t, "GET", token)), fmt.Sprint(ahead+2))
	s.Do(t, "DEL", "k")
	for _, bad := range []string{"x", "9007199254740991", "-1"} {
		s.Do(t, "SET", token, bad)
		before := contents(t, s)
		want(t, fenced("me", 1), "ERR the fencing token of this lock is not an integer below 2^53")
		want(t, step(t, s, "WLOCK FENCE", "me", 1000), "ERR the fencing token of this lock is not an integer below 2^53")
		want(t, contents(t, s), before)
	}
}

func TestRelease(t *testing.T) {
	s := testredis.Start(t)
	want(t, release(t, s, "me", 0, ""), "-1")
	s.Do(t, "HSET", "k", "me", "3")
	want(t, run(t, s, scripts.Release, plain("k"), "me", 0, late, "", "PUBLISH"), "-2")
	for range 2 { // sent again it is the same count
		want(t, release(t, s, "me", 2, ""), "0")
	}
	want(t, release(t, s, "you", 0, ""), "-1")
	want(t, release(t, s, "me", 0, ""), "1")
	want(t, contents(t, s), "")
	s.Do(t, "HSET", "k", "mode", "write", "me:write", "1")
	want(t, release(t, s, "me", 0, ""), "-3")
	want(t, release(t, s, "me:write", 0, ""), "-3")
}

func TestReleaseHalfPermittedChangesNothing(t *testing.T) {
	s := testredis.Start(t)
	s.Do(t, "ACL", "SETUSER", "mute", "on", ">p", "~*", "resetchannels", "+@all")
	s.Do(t, "HSET", "k", "me", "1")
	conn := s.Dial(t)
	if _, err := conn.Do("AUTH", "mute", "p"); err != nil {
		t.Fatal(err)
	}
	if got := eval(t, conn, scripts.Release, plain("k"), "me", 0, soon, "", "PUBLISH"); !strings.Contains(got, "can't publish") {
		t.Fatal("published without permission", got)
	}
	if s.Do(t, "EXISTS", "k").(int64) != 1 {
		t.Fatal("deleted without a message")
	}
}

func TestForce(t *testing.T) {
	s := testredis.Start(t)
	keys := plain("k")[:2]
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

// TestRenew: many holds in one script, each gets its lease, and whatever one key is, the others are renewed.
func TestRenew(t *testing.T) {
	s := testredis.Start(t)
	s.Do(t, "HSET", "a", "me", "1")
	s.Do(t, "PEXPIRE", "a", 100000)
	s.Do(t, "SET", "poison", "x")
	s.Do(t, "HSET", "rw", "mode", "write", "me", "1")
	for _, key := range []string{"k", "b", "you"} {
		s.Do(t, "HSET", key, "me", "1")
		s.Do(t, "PEXPIRE", key, 9000)
	}
	keys := []string{"a", "poison", "gone", "k", "rw", "b", "you"}
	renew := func(notAfter, how string) string {
		return run(t, s, scripts.Renew, keys, notAfter, how, "me", 30000, "me", 30000, "me", 30000, "me", 30000, "me", 30000, "me", 50000, "you", 30000)
	}
	want(t, renew(late, "set"), "[-2]")
	want(t, renew(soon, "lengthen"), "[1 0 0 1 0 1 0]")
	about(t, s, "a", 100000)
	about(t, s, "k", 30000)
	s.Do(t, "PERSIST", "k")
	want(t, renew(soon, "lengthen"), "[1 0 0 1 0 1 0]")
	about(t, s, "k", 30000)
	want(t, renew(soon, "set"), "[1 0 0 1 0 1 0]")
	about(t, s, "a", 30000)
	about(t, s, "k", 30000)
	about(t, s, "b", 50000)
	if ttl := left(t, s, "you"); ttl > 9000 {
		t.Error("the lock of another owner was renewed")
	}
}

// TestExtend: a connection's lease is set, and may become shorter.
func TestExtend(t *testing.T) {
	s := testredis.Start(t)
	extend := func(owner, notAfter string) string {
		return run(t, s, scripts.Extend, []string{"k"}, owner, 60000, notAfter, "set", "")
	}
	want(t, extend("me", soon), "[-1 0 0]")
	s.Do(t, "HSET", "k", "me", "2")
	s.Do(t, "PEXPIRE", "k", 90000)
	want(t, extend("me", late), "[-2 0 0]")
	want(t, extend("you", soon), "[-1 0 0]")
	about(t, s, "k", 90000)
	want(t, extend("me", soon), "[1 60000 0]")
	about(t, s, "k", 60000)
	s.Do(t, "HSET", "k", "mode", "read")
	want(t, extend("me", soon), "[-3 0 0]")
	s.Do(t, "DEL", "k")
	s.Do(t, "SET", "k", "x")
	want(t, extend("me", soon), wrongType)
}

func TestLookAndInfo(t *testing.T) {
	s := testredis.Start(t)
	look := func(owner string) string {
		t.Helper()
		return run(t, s, scripts.Look, []string{"k"}, owner, owner, "{k}", owner)
	}
	want(t, look("me"), "[0 0 0 0]")
	s.Do(t, "HSET", "k", "me", "2")
	s.Do(t, "SET", token, "42")
	s.Do(t, "RPUSH", queue, "a", "b")
	want(t, look("me"), "[1 0 0 0]")
	want(t, look("you"), "[0 0 0 0]")
	want(t, run(t, s, scripts.Info, []string{"k", token, queue}, "{k}", 5000), "[hash -1 42 2 0 me 2]")
	want(t, run(t, s, scripts.Info, []string{token, "k", "none"}, "{k}", 5000), "[string -1  0 0]")
	// Of a hash with many fields some are read. What has more than a lock may have is not looked at field by field.
	fields := []any{"many", "mode", "write"}
	for i := range 1000 {
		fields = append(fields, "o"+strconv.Itoa(i)+":write", 1)
	}
	s.Do(t, append([]any{"HSET"}, fields...)...)
	reply := strings.Fields(run(t, s, scripts.Info, []string{"many", token, queue}, "{many}", 16))
	if unread, _ := strconv.Atoi(reply[4]); unread < 900 || unread+(len(reply)-5)/2 != 1001 {
		t.Errorf("%d fields were not read, %d were", unread, (len(reply)-5)/2)
	}
	for i := range 5000 {
		s.Do(t, "HSET", "many", i, 1)
	}
	calls := regexp.MustCompile("cmdstat_(memory[^:]*|hscan|hgetall):calls=[0-9]+")
	stats := func() []string { return calls.FindAllString(string(s.Do(t, "INFO", "commandstats").([]byte)), -1) }
	before := stats()
	want(t, run(t, s, scripts.Info, []string{"many", token, queue}, "{many}", 16), "[other -1 42 2 0]")
	if after := stats(); !slices.Equal(before, after) {
		t.Error("a huge hash was read")
	}
	s.Do(t, "FLUSHALL")
	s.Do(t, "HSET", "k", "mode", "write", "me:write", 1, "me", 1)
	want(t, look("me"), "[0 1 0 0]")
	s.Do(t, "SET", holdsOf("me")+":1", 1, "PX", 600000)
	want(t, look("me"), "[0 1 1 0]")
}

// TestRaise: a token is only ever raised.
func TestRaise(t *testing.T) {
	s := testredis.Start(t)
	raise := func(token, notAfter string) string {
		return run(t, s, scripts.Raise, []string{"token"}, token, notAfter)
	}
	want(t, raise("5", soon), "[1]")
	want(t, raise("4", soon), "[1]")
	want(t, raise("9", late), "[-2]")
	want(t, string(s.Do(t, "GET", "token").([]byte)), "5")
	want(t, raise("9007199254740991", soon), "[1]")
	want(t, string(s.Do(t, "GET", "token").([]byte)), "9007199254740991")
}

// TestHugeFieldsStayInRedis: no script brings a `mode` of many MB to Lua, or a count; but a writer that looks for dead readers reads their counts.
func TestHugeFieldsStayInRedis(t *testing.T) {
	s := testredis.Start(t)
	huge := strings.Repeat("1", 16_000_000)
	conn := s.Dial(t)
	for name, fields := range map[string][]any{
		"mode": {"mode", huge}, "mode and a field": {"mode", huge, "me", "1"}, "a plain count": {"me", huge},
		"a reader's count": {"mode", "read", "me", huge}, "a writer's counts": {"mode", "write", "me", huge, "me:write", huge},
	} {
		for script, call := range everyScript() {
			if name == "a reader's count" && slices.Contains(call.args, any("write")) {
				continue
			}
			s.Do(t, "FLUSHALL")
			s.Do(t, "SCRIPT", "FLUSH")
			s.Do(t, append([]any{"HSET", "k"}, fields...)...)
			eval(t, conn, call.script, call.keys, call.args...)
			info, _ := redis.String(s.Do(t, "INFO", "memory"), nil)
			_, figure, _ := strings.Cut(info, "used_memory_lua:")
			var lua int
			if _, err := fmt.Sscan(figure, &lua); err != nil {
				t.Fatal(err)
			}
			if lua > 8_000_000 {
				t.Errorf("%s, %s: Lua has %d bytes", name, script, lua)
			}
		}
	}
}

type scriptCall struct {
	script *scripts.Script
	keys   []string
	args   []any
}

// everyScript is a call of each script that reads the hash of a lock, of the owner "me" on the lock "k".
func everyScript() map[string]scriptCall {
	acquire := []any{"me", 1, 1000, soon, "", "", "PUBLISH", "", 0}
	rwAcquire := []any{"me", "write", 0, 1, 1000, soon, "", "{k}", "", 0, "PUBLISH"}
	release := []any{"me", 0, soon, "", "PUBLISH", ""}
	rwRelease := []any{"me", "both", 0, 0, soon, "", "PUBLISH", "{k}", ""}
	one := []string{"k"}
	all := map[string]scriptCall{
		"read acquire":   {scripts.RWAcquire, rwKeys, []any{"me", "read", 1, 0, 1000, soon, "", "{k}", "", 0, "PUBLISH"}},
		"another's read": {scripts.RWAcquire, rwKeys, []any{"you", "read", 1, 0, 1000, soon, "", "{k}", "", 0, "PUBLISH"}},
		"read extend":    {scripts.RWExtend, one, []any{"me", "read", 1000, soon, "renew", "", "{k}"}},
	}
	for _, call := range []scriptCall{
		{scripts.Acquire, plain("k"), acquire},
		{scripts.Release, plain("k"), release},
		{scripts.Extend, one, []any{"me", 1000, soon, "set", ""}},
		{scripts.Renew, one, []any{soon, "set", "me", 1000}},
		{scripts.Force, plain("k")[:2], []any{"PUBLISH", soon}},
		{scripts.Refresh, plain("k")[:2], []any{soon, "PUBLISH", "me", 7}},
		{scripts.Leave, plain("k")[:2], []any{soon, "PUBLISH", "me"}},
		{scripts.Handoff, plain("k"), slices.Concat([]any{channel, "", "PUBLISH", "proxy"}, release, acquire)},
		{scripts.Vote, plain("k"), append([]any{0}, acquire...)},
		{scripts.RWAcquire, rwKeys, rwAcquire},
		{scripts.RWRelease, rwKeys, rwRelease},
		{scripts.RWExtend, one, []any{"me", "both", 1000, soon, "set", "", "{k}"}},
		{scripts.RWRenew, one, []any{soon, "me", 1, 1, 1000, "{k}"}},
		{scripts.RWForce, rwKeys[:2], []any{"PUBLISH", soon, "", "{k}"}},
		{scripts.RWHandoff, rwKeys, slices.Concat([]any{rwChannel, "", "PUBLISH", "proxy"}, rwRelease, rwAcquire)},
		{scripts.RWVote, rwKeys, append([]any{0}, rwAcquire...)},
		{scripts.Look, one, []any{"me", "me", "{k}", "me"}},
		{scripts.Info, []string{"k", token, queue}, []any{"{k}", 5000}},
		{scripts.Vacant, plain("k")[:2], []any{"PUBLISH", "P", "me"}},
	} {
		all[call.script.Name] = call
	}
	return all
}
