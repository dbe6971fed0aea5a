package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/scripts"
)

func TestRWKindsAndUpgrade(t *testing.T) {
	s := testredis.Start(t)
	all := []string{"RLOCK", "WLOCK", "UNLOCK READ", "UNLOCK WRITE", "UNLOCK BOTH", "RENEW READ", "RENEW WRITE", "RENEW BOTH"}
	s.Do(t, "HSET", "k", "a", "1")
	s.Do(t, "PEXPIRE", "k", 60000)
	before, _ := record(t, s)
	for _, op := range all {
		if reply := step(t, s, op, "a", 1000); !strings.HasPrefix(strings.Trim(reply, "["), "-3") {
			t.Errorf("%s of a plain lock: %s", op, reply)
		}
	}
	want(t, step(t, s, "FORCE ", "a", 0), "-3")
	s.Do(t, "HSET", "k", "mode", "sideways")
	want(t, step(t, s, "RLOCK", "b", 1000), "[-3 0 0 0 0]")
	s.Do(t, "HDEL", "k", "mode")
	if after, _ := record(t, s); !slices.Equal(before, after) || left(t, s, "k") < 30000 {
		t.Errorf("changed: %q", after)
	}
	s.Do(t, "SET", "k", "x")
	for _, op := range append(all, "FORCE ") {
		want(t, step(t, s, op, "a", 1000), wrongType)
	}
	flush(t, s)
	step(t, s, "RLOCK", "a", 30000)
	want(t, step(t, s, "WLOCK", "a", 30000), "[-5 0 0 0 0]")
	want(t, run(t, s, scripts.RWAcquire, rwKeys, "a", "write", "lengthen", 0, 30000, soon, "", "{k}", "", 0, "PUBLISH"), "[-5 0 0 0 0]")
	want(t, acquire(t, s, "k", "a", 1, 1000), "[-3 0 0 0 0]")
	want(t, run(t, s, scripts.Renew, []string{"k"}, soon, "set", "a", 1000), "[0]") // a plain hold of that owner has gone
	want(t, run(t, s, scripts.Look, []string{"k"}, "a", "a", "{k}", "a"), "[0 0 1 0]")
	// A connection that does not know of a read hold, since it was told lost, gets the lock in its place, unless others read.
	want(t, run(t, s, scripts.RWAcquire, rwKeys, "a", "write", 0, 1, 30000, soon, "", "{k}", "", 0, "PUBLISH"), "[1 1 30000 0 0]")
	want(t, hash(t, s), "k a:write=1 mode=write")
	// So does one that reads, and does not know that it wrote.
	want(t, run(t, s, scripts.RWAcquire, rwKeys, "a", "read", 1, 0, 30000, soon, "", "{k}", "", 0, "PUBLISH")[:5], "[1 1 ")
	want(t, hash(t, s), "k a=1 mode=read")
	step(t, s, "RLOCK", "b", 30000)
	want(t, run(t, s, scripts.RWAcquire, rwKeys, "a", "write", 0, 1, 30000, soon, "", "{k}", "", 0, "PUBLISH")[:5], "[0 0 ")
}

// TestRWLateAndMute: too late or not permitted to publish, nothing is changed.
func TestRWLateAndMute(t *testing.T) {
	s := testredis.Start(t)
	step(t, s, "WLOCK", "a", 60000)
	step(t, s, "RLOCK", "a", 60000)
	step(t, s, "RLOCK", "a", 60000)
	s.Do(t, "ACL", "SETUSER", "mute", "on", ">p", "~*", "resetchannels", "+@all")
	conn := s.Dial(t)
	if _, err := conn.Do("AUTH", "mute", "p"); err != nil {
		t.Fatal(err)
	}
	mute := func(script *scripts.Script, keys []string, args ...any) {
		t.Helper()
		if reply := eval(t, conn, script, keys, args...); !strings.Contains(reply, "can't publish") {
			t.Error("published without permission", reply)
		}
	}
	before, _ := record(t, s)
	mute(scripts.RWRelease, rwKeys, "a", "both", 0, 0, soon, "", "PUBLISH", "{k}")
	mute(scripts.RWForce, rwKeys[:2], "PUBLISH", soon, "", "{k}")
	for _, c := range []struct{ want, got string }{
		{"[-2 0 0 0 0]", run(t, s, scripts.RWAcquire, rwKeys, "a", "read", 3, 1, 1, late, "", "{k}", "", 0, "PUBLISH")},
		{"-2", run(t, s, scripts.RWRelease, rwKeys, "a", "both", 0, 0, late, "", "PUBLISH", "{k}")},
		{"[-2 0 0]", run(t, s, scripts.RWExtend, []string{"k"}, "a", "both", 1, late, "set", "", "{k}")},
		{"[-2]", run(t, s, scripts.RWRenew, []string{"k"}, late, "a", 2, 1, 1, "{k}")},
		{"-2", run(t, s, scripts.RWForce, rwKeys[:2], "PUBLISH", late, "", "{k}")},
	} {
		want(t, c.got, c.want)
	}
	after, _ := record(t, s)
	if !slices.Equal(before, after) {
		t.Errorf("%q became %q", before, after)
	}
	step(t, s, "UNLOCK WRITE", "a", 0)
	before, _ = record(t, s)
	mute(scripts.RWRelease, rwKeys, "a", "read", 0, 0, soon, "", "PUBLISH", "{k}")
	if after, _ := record(t, s); !slices.Equal(before, after) {
		t.Errorf("%q became %q", before, after)
	}
}

// TestRWForeignCounts: what others write into the fields neither stops Redis nor sticks.
func TestRWForeignCounts(t *testing.T) {
	s := testredis.Start(t)
	began := time.Now()
	for _, value := range []string{"x", "", "-1", "0", "1.5", "1e3", "999999999999999", "99999999999999999999"} {
		for _, mode := range []string{"read", "write"} {
			s.Do(t, "HSET", "k", "mode", mode, "a", value, "a:write", value)
			s.Do(t, "PEXPIRE", "k", 30000)
			for _, op := range []string{"RENEW BOTH", "UNLOCK READ", "UNLOCK WRITE", "RLOCK", "WLOCK", "FORCE "} {
				if reply := step(t, s, op, "a", 1000); strings.HasPrefix(reply, "ERR") {
					t.Errorf("%s of %q: %s", op, value, reply)
				}
			}
			flush(t, s)
		}
		s.Do(t, "HSET", "k", "mode", "read", "a", value)
		want(t, step(t, s, "RLOCK", "a", 90000), "[1 1 90000 0 0]")
		want(t, step(t, s, "UNLOCK READ", "a", 0), "1")
		want(t, contents(t, s), "")
		flush(t, s)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("took %v", took)
	}
}

// TestRWStepsMayComeAgain: a step says what the counts are to be, so that it leaves the same when it is sent again; the time-out keys are those
// of the count.
func TestRWStepsMayComeAgain(t *testing.T) {
	s := testredis.Start(t)
	h := holdsOf("a")
	twice := func(reply string, script *scripts.Script, args ...any) {
		t.Helper()
		for range 2 {
			if got := run(t, s, script, rwKeys, args...); !strings.HasPrefix(got, reply) {
				t.Errorf("%v: %s", args, got)
			}
		}
	}
	holds := func(state ...string) {
		t.Helper()
		if got, _ := record(t, s); !slices.Equal(got, state) {
			t.Errorf("got %q, want %q", got, state)
		}
	}
	twice("[1 ", scripts.RWAcquire, "a", "read", 1, 0, 9000, soon, "", "{k}", "", 0, "PUBLISH")
	twice("[1 0 ", scripts.RWAcquire, "a", "read", 2, 0, 9000, soon, "", "{k}", "", 0, "PUBLISH")
	want(t, hash(t, s), "k a=2 mode=read")
	twice("0", scripts.RWRelease, "a", "read", 1, 0, soon, "", "PUBLISH", "{k}")
	holds("k a=1 mode=read", h+":1 1")
	run(t, s, scripts.RWRelease, rwKeys, "a", "both", 0, 0, soon, "", "PUBLISH", "{k}")
	holds()
	twice("[1 ", scripts.RWAcquire, "a", "write", 0, 1, 9000, soon, "", "{k}", "", 0, "PUBLISH")
	twice("[1 ", scripts.RWAcquire, "a", "read", 1, 1, 9000, soon, "", "{k}", "", 0, "PUBLISH")
	twice("[1 0 ", scripts.RWAcquire, "a", "write", 1, 2, 9000, soon, "", "{k}", "", 0, "PUBLISH")
	holds("k a:write=2 a=1 mode=write", h+":1 1")
	twice("0", scripts.RWRelease, "a", "write", 1, 1, soon, "", "PUBLISH", "{k}")
	twice("1", scripts.RWRelease, "a", "write", 1, 0, soon, "", "PUBLISH", "{k}")
	holds("k a=1 mode=read", h+":1 1")
}

// TestRWFence: each WLOCK gets a higher token than all before.
func TestRWFence(t *testing.T) {
	s := testredis.Start(t)
	first := numbers(t, step(t, s, "WLOCK FENCE", "a", 5000))[3]
	want(t, fmt.Sprint(left(t, s, token)), "-1")
	second := numbers(t, step(t, s, "WLOCK FENCE", "a", 5000))[3]
	kept, _ := redis.Int64(s.Do(t, "GET", token), nil)
	if first == 0 || second <= first || kept != second {
		t.Error("no higher token", first, second, kept)
	}
}

// hash is what the lock's hash has.
func hash(t *testing.T, s *testredis.Server) string {
	t.Helper()
	for state, _ := record(t, s); len(state) > 0; state = state[1:] {
		if strings.HasPrefix(state[0], "k ") {
			return state[0]
		}
	}
	return ""
}
