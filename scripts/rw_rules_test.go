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
	all := []string{"RLOCK", "WLOCK", "UNLOCK READ", "UNLOCK WRITE", "RENEW READ", "RENEW WRITE"}
	s.Do(t, "HSET", "k", "a", "1")
	s.Do(t, "PEXPIRE", "k", 60000)
	before, _ := record(t, s)
	for _, op := range all {
		if reply := step(t, s, op, "a", 1000, ""); !strings.HasPrefix(reply, "[-3 ") {
			t.Errorf("%s of a plain lock: %s", op, reply)
		}
	}
	want(t, step(t, s, "FORCE ", "a", 0, ""), "-3")
	s.Do(t, "HSET", "k", "mode", "sideways")
	want(t, step(t, s, "RLOCK", "b", 1000, ""), "[-3 0 0 0]")
	s.Do(t, "HDEL", "k", "mode")
	if after, _ := record(t, s); !slices.Equal(before, after) || left(t, s, "k") < 50000 {
		t.Errorf("changed: %q", after)
	}
	s.Do(t, "SET", "k", "x")
	for _, op := range append(all, "FORCE ") {
		want(t, step(t, s, op, "a", 1000, ""), "WRONGTYPE Operation against a key holding the wrong kind of value")
	}
	s.Do(t, "DEL", "k")
	step(t, s, "RLOCK", "a", 30000, "")
	want(t, step(t, s, "WLOCK", "a", 30000, ""), "[-5 0 0 0]")
	want(t, step(t, s, "WLOCK", "a", 30000, "M")[:5], "[0 0 ")
	want(t, run(t, s, scripts.Acquire, plain("k"), 1000, "a", soon, "", "PUBLISH"), "[-3 0 0 0]")
	want(t, run(t, s, scripts.Renew, []string{"k"}, 1000, soon, "a"), "0") // a plain hold of that owner has gone
	want(t, run(t, s, scripts.Look, []string{"k", token}, "a")[17:20], " 0 ")
	s.Do(t, "DEL", "k")
	step(t, s, "WLOCK", "a", 30000, "")
	want(t, step(t, s, "RLOCK", "a", 1000, "M")[:5], "[0 0 ") // a write hold that was told lost
	want(t, run(t, s, scripts.Renew, []string{"k"}, 60000, soon, "a:write"), "1")
	about(t, s, "k", 60000)
}

// TestRWLateAndMute: too late or not permitted to publish, nothing is changed.
func TestRWLateAndMute(t *testing.T) {
	s := testredis.Start(t)
	step(t, s, "WLOCK", "a", 60000, "")
	step(t, s, "RLOCK", "a", 60000, "")
	step(t, s, "RLOCK", "a", 60000, "")
	s.Do(t, "ACL", "SETUSER", "mute", "on", ">p", "~*", "resetchannels", "+@all")
	conn := s.Dial(t)
	if _, err := conn.Do("AUTH", "mute", "p"); err != nil {
		t.Fatal(err)
	}
	before, _ := record(t, s)
	if _, err := conn.Do("EVAL", scripts.WriteRelease.Source, 2, "k", rwChannel, "a:write", "PUBLISH", soon, "", "", "a", "{k}"); err == nil {
		t.Error("published without permission")
	}
	if _, err := conn.Do("EVAL", scripts.RWForce.Source, 2, "k", rwChannel, "PUBLISH", soon, "", "{k}"); err == nil {
		t.Error("published without permission")
	}
	h := holdsOf("a")
	for want, got := range map[string][]string{
		"[-2 0 0 0]": {
			run(t, s, scripts.ReadAcquire, []string{"k", h}, 1, "a", late, "", "", 0, "a:write", "{k}"),
			run(t, s, scripts.WriteAcquire, []string{"k"}, 1, "a:write", late, "", "", 0, "a", "{k}"),
		},
		"[-2 0]": {
			run(t, s, scripts.ReadRelease, []string{"k", h, rwChannel}, "a", "PUBLISH", late, "A", "", "", "{k}"),
			run(t, s, scripts.WriteRelease, []string{"k", rwChannel}, "a:write", "PUBLISH", late, "A", "", "a", "{k}"),
		},
		"[-2 0 0]": {
			run(t, s, scripts.ReadExtend, []string{"k", h}, 1, "a", late, "", "", "", "a:write", "{k}"),
			run(t, s, scripts.WriteExtend, []string{"k"}, 1, "a:write", late, "", "", "", "a", "{k}"),
		},
		"[-2]": {run(t, s, scripts.ReadRenew, []string{"k", h}, 1, late, "a")},
		"-2":   {run(t, s, scripts.RWForce, []string{"k", rwChannel}, "PUBLISH", late, "", "{k}")},
	} {
		for _, g := range got {
			if g != want {
				t.Errorf("got %s, want %s", g, want)
			}
		}
	}
	after, _ := record(t, s)
	if !slices.Equal(before, after) {
		t.Errorf("%q became %q", before, after)
	}
	step(t, s, "UNLOCK WRITE", "a", 0, "")
	before, _ = record(t, s)
	if _, err := conn.Do("EVAL", scripts.ReadRelease.Source, 3, "k", h, rwChannel, "a", "PUBLISH", soon, "A", "", "", "{k}"); err == nil {
		t.Error("published without permission")
	}
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
			for _, op := range []string{"RENEW READ", "RENEW WRITE", "UNLOCK READ", "UNLOCK WRITE", "RLOCK", "WLOCK", "FORCE "} {
				if reply := step(t, s, op, "a", 1000, ""); strings.HasPrefix(reply, "ERR") {
					t.Errorf("%s of %q: %s", op, value, reply)
				}
			}
			s.Do(t, "FLUSHALL")
		}
		s.Do(t, "HSET", "k", "mode", "read", "a", value)
		want(t, step(t, s, "RLOCK", "a", 90000, ""), "[1 1 90000 0 1]")
		want(t, step(t, s, "UNLOCK READ", "a", 0, ""), "[1 0]")
		want(t, contents(t, s), "")
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("took %v", took)
	}
}

func TestRWLetters(t *testing.T) {
	s := testredis.Start(t)
	h := holdsOf("a")
	// Once, and anew after a loss.
	step(t, s, "RLOCK", "a", 9000, "")
	want(t, step(t, s, "RLOCK", "a", 20000, "O"), "[1 1 20000 0 0]")
	about(t, s, h+":1", 20000)
	step(t, s, "RLOCK", "a", 9000, "")
	want(t, step(t, s, "RLOCK", "a", 9000, "N"), "[1 1 9000 0 1]")
	if n := s.Do(t, "EXISTS", h+":2").(int64); n != 0 {
		t.Error("a hold of before is left")
	}
	s.Do(t, "FLUSHALL")
	step(t, s, "WLOCK", "a", 9000, "")
	want(t, step(t, s, "WLOCK", "a", 20000, "O"), "[1 1 20000 0 0]")
	step(t, s, "WLOCK", "a", 9000, "")
	want(t, step(t, s, "WLOCK", "a", 5000, "N"), "[1 1 5000 0 1]")
	about(t, s, "k", 5000)
	s.Do(t, "FLUSHALL")

	// Registrations.
	watchW := watch + ":write"
	want(t, run(t, s, scripts.ReadAcquire, []string{"k", holdsOf("me"), watch}, 5000, "me", soon, "W", "r1", 0, "me:write", "{k}"), "[1 1 5000 0 1]")
	want(t, run(t, s, scripts.ReadRenew, []string{"k", holdsOf("me"), watch}, 9000, soon, "me", "r1"), "[1]")
	about(t, s, watch, 9000)
	want(t, run(t, s, scripts.ReadRenew, []string{"k", holdsOf("me"), watch}, 9000, soon, "me", "r2"), "[2]")
	if reply := run(t, s, scripts.ReadLook, []string{"k", holdsOf("me"), token, watch}, "me")[17:]; !strings.HasPrefix(reply, " 1 ") || !strings.HasSuffix(reply, " 0 r1]") {
		t.Error(reply)
	}
	release := func(letters, known string) string {
		return run(t, s, scripts.ReadRelease, []string{"k", holdsOf("me"), rwChannel, watch}, "me", "PUBLISH", soon, letters, known, "", "{k}")
	}
	want(t, release("AWX", "r2"), "[-1 1]")
	want(t, release("AWX", "r1"), "[1 0]")
	want(t, contents(t, s), "")
	s.Do(t, "FLUSHALL")
	want(t, run(t, s, scripts.WriteAcquire, []string{"k", token, watchW}, 5000, "me:write", soon, "FW", "r1", 0, "me", "{k}")[:9], "[1 1 5000")
	want(t, fmt.Sprint(left(t, s, token)), "-1")
	first, _ := redis.Int64(s.Do(t, "GET", token), nil)
	run(t, s, scripts.WriteAcquire, []string{"k", token}, 5000, "me:write", soon, "F", "", 0, "me", "{k}")
	if second, _ := redis.Int64(s.Do(t, "GET", token), nil); second <= first {
		t.Error("no higher token", first, second)
	}
	for _, known := range []string{"r2", ""} {
		want(t, run(t, s, scripts.WriteRelease, []string{"k", rwChannel, watchW}, "me:write", "PUBLISH", soon, "AWX", known, "me", "{k}"), "[-1 1]")
	}
	want(t, run(t, s, scripts.WriteRelease, []string{"k", rwChannel, watchW}, "me:write", "PUBLISH", soon, "AW", "", "me", "{k}"), "[1 0]")
	want(t, run(t, s, scripts.WriteRelease, []string{"k", rwChannel, watchW}, "me:write", "PUBLISH", soon, "AW", "r1", "me", "{k}"), "[-1 1]")
	s.Do(t, "SET", token, "x")
	before := contents(t, s)
	want(t, run(t, s, scripts.WriteAcquire, []string{"k", token}, 1000, "me:write", soon, "FN", "", 0, "me", "{k}"),
		"ERR the fencing token of this lock is not an integer below 2^53")
	want(t, contents(t, s), before)
}

// TestReadRenewSparesOthers: many owners in one script, and whatever one key is, the others are extended.
func TestReadRenewSparesOthers(t *testing.T) {
	s := testredis.Start(t)
	var keys []string
	args := []any{30000, soon, "----"}
	for _, key := range []string{"poison", "x", "gone", "y"} {
		keys = append(keys, key, "{"+key+"}:o:rwlock_timeout")
		args = append(args, "o")
		if len(key) == 1 {
			run(t, s, scripts.ReadAcquire, keys[len(keys)-2:], 1000, "o", soon, "N", "", 0, "o:write", "{"+key+"}")
			run(t, s, scripts.ReadAcquire, keys[len(keys)-2:], 90000, "o", soon, "", "", 0, "o:write", "{"+key+"}")
		}
	}
	s.Do(t, "SET", "poison", "x")
	want(t, run(t, s, scripts.ReadRenew, keys, args...), "[0 1 0 1]")
	for _, key := range []string{"x", "y"} {
		about(t, s, key, 90000)
		about(t, s, "{"+key+"}:o:rwlock_timeout:1", 30000)
		about(t, s, "{"+key+"}:o:rwlock_timeout:2", 90000)
	}
}
