package locks

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

const ownerError = "-ERR invalid owner"

// rangeError is that of the value of an option.
func rangeError(option string) string {
	return "-ERR value is not an integer or out of range near '" + option + "'\r\n"
}

func arityError(verb string) string {
	return "-ERR wrong number of arguments for '" + verb + "' command\r\n"
}

// marked takes the mark, a *, off the word of a call at which its syntax error is, and returns that error's line.
func marked(call string) (plain, reply string) {
	before, after, _ := strings.Cut(call, "*")
	word, _, _ := strings.Cut(after, " ")
	reply = "-ERR syntax error near '" + word + "'"
	if strings.TrimSpace(after) == word && slices.Contains([]string{"BLOCK", "EX", "PX", "OWNER", "REPLICAS", "MATCH"}, word) {
		reply += ": its value is missing"
	}
	return before + after, reply + "\r\n"
}

// refusals are calls that must change nothing, with the beginning of their reply.
func refusals() map[string]string {
	r := map[string]string{
		"LOCK": arityError("lock"), "UNLOCK": arityError("unlock"), "RENEW": arityError("renew"),
		"RLOCK": arityError("rlock"), "WLOCK": arityError("wlock"), "MULTILOCK 1": arityError("multilock"), "MULTIUNLOCK 1": arityError("multiunlock"),
		"LOCKINFO": arityError("lockinfo"), "LOCKINFO a b": arityError("lockinfo"), "lock": arityError("lock"),
	}
	syntax := func(call string, tails ...string) {
		for _, tail := range tails {
			plain, reply := marked(call + " " + tail)
			r[plain] = reply
		}
	}
	syntax("LOCK free", "*x", "*blok", "*BLOCK", "*EX", "*PX", "*OWNER", "*REPLICAS", "*5", "EX 5 *PX 5000", "PX 5000 *EX 5", "EX 5 *ex 5",
		"BLOCK 1 *BLOCK 1", "BLOCK 1 *2", "OWNER a *OWNER a", "OWNER a *SELF", "SELF *OWNER a", "SELF *self", "*ONCE", "FENCE *ONCE",
		"SELF *ONCE", "OWNER a *ONCE", "FENCE *FENCE", "REPLICAS 1 *REPLICAS 1", "*ALL", "*FORCE", "*READ", "*WRITE", "EX 5 *BLOCK", "*MATCH a")
	syntax("FAIRLOCK free", "*x", "*READ", "EX 5 *PX 5", "SELF *OWNER a", "*ONCE", "*BLOCK")
	syntax("UNLOCK held", "*x", "*OWNER", "ALL *ALL", "ALL *FORCE", "FORCE *ALL", "FORCE *OWNER a", "OWNER a *FORCE", "OWNER a *OWNER a",
		"*BLOCK 5", "*EX 5", "*ONCE", "*FENCE", "*SELF")
	syntax("RENEW held", "*x", "*EX", "*PX", "EX 5 *PX 5", "EX 5 *EX 5", "*OWNER", "*BLOCK 5", "*ONCE", "*FENCE", "*ALL", "*FORCE", "*SELF")
	for _, verb := range []string{"UNLOCK", "RENEW"} {
		syntax(verb+" held", "READ *WRITE", "WRITE *READ", "READ *READ", "WRITE *WRITE OWNER a")
	}
	syntax("RLOCK free", "*FENCE", "*READ", "*ONCE", "OWNER a *SELF", "EX 5 *PX 5", "*ALL")
	syntax("WLOCK free", "*WRITE", "*ONCE", "FENCE *FENCE", "OWNER a *SELF", "EX 5 *PX 5", "*FORCE")
	syntax("MULTILOCK 2 free freetoo", "*READ", "*ONCE", "OWNER a *SELF", "EX 5 *PX 5", "*FORCE", "*more", "BLOCK 1 *BLOCK 1")
	syntax("MULTIUNLOCK 2 held free", "*ALL", "*FORCE", "*READ", "*OWNER", "*more", "OWNER a *OWNER a")
	syntax("FENCED held", "READ *WRITE SET a b", "OWNER a *OWNER a SET a b", "*OWNER")
	syntax("LOCKLIST", "*OWNER", "*MATCH", "OWNER a *OWNER a", "MATCH a *MATCH a", "*x", "*BLOCK 5", "*OWNER ", "*MATCH ", "OWNER a *MATCH ")
	for _, verb := range []string{"MULTILOCK", "MULTIUNLOCK"} {
		for _, n := range []string{"0", "-1", "x", "1.5", "+1", "01", ""} {
			r[verb+" "+n+" free held"] = "-ERR numkeys should be greater than 0\r\n"
		}
		r[verb+" 3 free held"] = "-ERR Number of keys can't be greater than number of args\r\n"
		r[verb+" 1024 free held OWNER a"] = "-ERR Number of keys can't be greater than number of args\r\n"
		r[verb+" 1025 free held"] = "-ERR numkeys should be at most 1024\r\n"
		r[verb+" 2 held free OWNER mode"] = ownerError
	}
	r["MULTILOCK 2 free freetoo PX 0"] = rangeError("PX")
	for _, n := range []string{"0", "-1", "x", "1.5", "+1", "01", "1e3", "0x10", "9007199254740993", "9223372036854775808", ""} {
		for _, option := range []string{"EX", "PX"} {
			r["LOCK free "+option+" "+n] = rangeError(option)
			r["RENEW held "+option+" "+n] = rangeError(option)
		}
		r["LOCK free REPLICAS "+n] = rangeError("REPLICAS")
		if n != "0" {
			r["LOCK free BLOCK "+n] = rangeError("BLOCK")
		}
	}
	for _, call := range []string{"LOCK %s", "FAIRLOCK %s", "RLOCK %s", "WLOCK %s", "MULTILOCK 2 free %s", "UNLOCK %s", "UNLOCK %s FORCE", "MULTIUNLOCK 2 free %s", "RENEW %s", "FENCED %s SET a b", "LOCKINFO %s"} {
		for _, name := range []string{"lockproxy_x", "{held}:own:rwlock_timeout:1", "redisson_lock_token:{free}", "redisson_lock_queue:a{free}", "redisson_lock_timeout:{free}"} {
			r[fmt.Sprintf(call, name)] = "-ERR '" + name + "' cannot be a lock"
		}
	}
	r["LOCK free EX 9007199254741"] = rangeError("EX") // more than 2^53 ms
	for _, owner := range []string{"", "mode", "SELF", "Self", "a:write", "0f8fad5b-d9cb-469f-a165-70867728950e:52", "0f8fad5b-d9cb-469f-a165-70867728950e:52:write", strings.Repeat("o", 257)} {
		r["LOCK free OWNER "+owner] = ownerError
		r["UNLOCK held OWNER "+owner] = ownerError
		r["RENEW held OWNER "+owner] = ownerError
	}
	return r
}

// state is everything Redis holds, times left aside.
func state(t testing.TB, s *testredis.Server) string {
	t.Helper()
	names := harness.Keys(t, s)
	slices.Sort(names)
	text := ""
	for _, k := range names {
		text += fmt.Sprintf("%s=%s\n", k, s.Do(t, "DUMP", k))
	}
	return text
}

func TestRefusedCallsChangeNothing(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL())
	w := harness.Dial(t, p.Addr())
	harness.Expect(t, w, "+OK\r\n", "LOCK", "held")
	harness.Expect(t, w, "+OK\r\n", "LOCK", "own", "OWNER", "a", "EX", "1000")
	before := state(t, s)
	calls := refusals()
	for _, call := range slices.Sorted(maps.Keys(calls)) {
		if got := w.Do(strings.Split(call, " ")...); !strings.HasPrefix(got, calls[call]) {
			t.Errorf("%.80s: %q, want %q", call, got, calls[call])
		}
	}
	if after := state(t, s); after != before {
		t.Errorf("Redis held\n%q\nand now\n%q", before, after)
	}
	t.Logf("%d refused calls", len(calls))
}

// Every option in every letter case and in any order, at the ends of its range.
func TestAcceptedCalls(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, upstream string) {
		p := harness.StartProxy(t, upstream)
		w := harness.Dial(t, p.Addr())
		for _, tail := range []string{
			"", "EX 1000", "ex 9007199254740", "PX 100000", "px 9007199254740992", "BLOCK 0", "BLOCK 9007199254740992", "SELF", "self", "OWNER o EX 30",
			"EX 1000 BLOCK 5 SELF", "bLoCk 5 oWnEr o pX 100000", "OWNER " + strings.Repeat("o", 256) + " EX 30", "OWNER EX EX 1000",
			"OWNER once EX 30", "EX 30 OWNER \x00\xff\r\n", "OWNER mode:1 EX 30", "OWNER 0F8FAD5B-D9CB-469F-A165-70867728950E:52 EX 30", "OWNER {x} EX 30",
		} {
			args := strings.Split(strings.TrimSpace("LOCK k "+tail), " ")
			if got := w.Do(args...); got != "+OK\r\n" {
				t.Errorf("%.80q: %q", args, got)
				continue
			}
			unlock := []string{"unlock", "k"}
			if i := slices.IndexFunc(args, func(a string) bool { return strings.EqualFold(a, "OWNER") }); i > 0 {
				unlock = append(unlock, args[i], args[i+1])
			}
			if got := w.Do(unlock...); got != ":1\r\n" {
				t.Errorf("%.80q: %q", unlock, got)
			}
			if tail != "" {
				if got := harness.Number(t, w.Do(append(args, "fence")...)); got < 1e15 {
					t.Errorf("%.80q fence: %d", args, got)
				}
				harness.Expect(t, w, ":1\r\n", append(unlock, "ALL")...)
			}
		}
	})
}

// Counts of holds, as replies tell them and as Redis has them: of a connection; an owner with a name counts nothing.
func TestReentryCounts(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL())
	w := harness.Dial(t, p.Addr())
	for _, owner := range [][]string{nil, {"OWNER", "me"}} {
		verb := func(name string, more ...string) string {
			return w.Do(slices.Concat([]string{name, "k"}, owner, more)...)
		}
		for i := range 5 {
			if got := verb("LOCK", "EX", "30"); got != "+OK\r\n" {
				t.Fatalf("the %dth LOCK: %q", i+1, got)
			}
		}
		want := "1"
		for i := 0; i < 2 && owner == nil; i++ {
			if want = "3"; verb("UNLOCK") != ":0\r\n" {
				t.Fatal("free")
			}
		}
		for _, holds := range hash(t, s, "k") {
			if holds != want {
				t.Errorf("%s holds after 5 LOCK, not %s", holds, want)
			}
		}
		if got := verb("UNLOCK", "ALL"); got != ":1\r\n" {
			t.Error(got)
		}
		if exists(t, s, "k") {
			t.Error("still held after ALL")
		}
	}
}

func TestRenew(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL())
	w, other := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	harness.Expect(t, w, "+OK\r\n", "LOCK", "k", "EX", "100")
	for _, c := range []struct {
		args      []string
		low, high int64
	}{
		{[]string{"RENEW", "k", "EX", "50"}, 40000, 50000}, // shorter too
		{[]string{"RENEW", "k", "PX", "90000"}, 80000, 90000},
		{[]string{"RENEW", "k"}, 80000, 90000}, // watched, and never shortened by that
	} {
		harness.Expect(t, w, ":1\r\n", c.args...)
		if left := pttl(t, s, "k"); left < c.low || left > c.high {
			t.Errorf("%q: PTTL %d", c.args, left)
		}
	}
	if got := w.Do("LOCKINFO", "k"); !strings.Contains(got, "watched\r\n:1\r\n") {
		t.Errorf("after RENEW without a lease: %q", got)
	}
	harness.Expect(t, w, ":1\r\n", "RENEW", "k", "EX", "5")
	if got := w.Do("LOCKINFO", "k"); !strings.Contains(got, "watched\r\n:0\r\n") {
		t.Errorf("after RENEW with a lease: %q", got)
	}
	for _, args := range [][]string{{"RENEW", "k"}, {"RENEW", "k", "OWNER", "me", "EX", "30"}, {"RENEW", "none", "EX", "5"}} {
		if got := other.Do(args...); !strings.HasPrefix(got, "-NOTHELD ") {
			t.Errorf("%q by another: %q", args, got)
		}
	}
	harness.Expect(t, w, ":1\r\n", "UNLOCK", "k")
}

// Keys that hold something else are left alone, with Redis' own words.
func TestOtherKinds(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, upstream string) {
		p := harness.StartProxy(t, upstream)
		w := harness.Dial(t, p.Addr())
		w.Do("SET", "string", "x")
		w.Do("RPUSH", "list", "x")
		w.Do("HSET", "rw", "mode", "read", "0f8fad5b-d9cb-469f-a165-70867728950e:52", "1")
		w.Do("HSET", "data", "field", "text", "other", "more")
		w.Do("HSET", "one", "field", "text")
		for _, c := range []struct{ call, want string }{
			{"LOCK string", "-WRONGTYPE "}, {"LOCK list BLOCK 0", "-WRONGTYPE "}, {"LOCK string FENCE OWNER a EX 30", "-WRONGTYPE "},
			{"UNLOCK string", "-NOTHELD "}, {"UNLOCK list FORCE", "-WRONGTYPE "}, {"RENEW string EX 5", "-NOTHELD "}, {"RENEW string EX 5 OWNER a", "-NOTHELD "}, {"UNLOCK string OWNER a", "-NOTHELD "},
			{"LOCK rw", "-LOCKKIND "}, {"LOCK rw BLOCK 0", "-LOCKKIND "}, {"UNLOCK rw", "-NOTHELD "}, {"RENEW rw", "-NOTHELD "},
			{"RLOCK one", "-LOCKKIND "}, {"WLOCK one BLOCK 0", "-LOCKKIND "}, {"UNLOCK one READ", "-NOTHELD "}, {"RENEW one WRITE", "-NOTHELD "},
			{"RLOCK string", "-WRONGTYPE "}, {"WLOCK list BLOCK 0", "-WRONGTYPE "}, {"UNLOCK string READ", "-NOTHELD "}, {"UNLOCK one READ FORCE", "-LOCKKIND "},
			{"UNLOCK data FORCE", "-WRONGTYPE "}, {"UNLOCK one FORCE", "-WRONGTYPE "}, {"UNLOCK data", "-NOTHELD "},
		} {
			if got := w.Do(strings.Split(c.call, " ")...); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s: %q", c.call, got)
			}
		}
		if got := w.Do("DBSIZE"); got != ":5\r\n" {
			t.Errorf("DBSIZE %q", got)
		}
		harness.Expect(t, w, "$1\r\nx\r\n", "GET", "string")
		harness.Expect(t, w, ":2\r\n", "HLEN", "rw")
		harness.Expect(t, w, ":2\r\n", "HLEN", "data")
		harness.Expect(t, w, ":0\r\n", "UNLOCK", "rw", "WRITE", "FORCE")
		harness.Expect(t, w, ":1\r\n", "UNLOCK", "rw", "FORCE")
	})
}
