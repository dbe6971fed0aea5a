package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/scripts"
)

// lease is what a named owner does with one kind of hold on k, and the key by whose expiry the hold tells who made it.
type lease struct {
	kind, key string
	take      func(how string, ms int) string
	renew     func(how string, ms int, expiry any) string
	giveBack  func(expiry any) string
}

// leases are all kinds, of the owner "me".
func leases(t *testing.T, s *testredis.Server) []lease {
	rw := func(side, key string) lease {
		return lease{side, key,
			func(how string, ms int) string {
				return run(t, s, scripts.RWAcquire, rwKeys, "me", side, how, 0, ms, soon, "", "{k}", "", 0, "PUBLISH")
			},
			func(how string, ms int, expiry any) string {
				return run(t, s, scripts.RWExtend, []string{"k"}, "me", side, ms, soon, how, expiry, "{k}")
			},
			func(expiry any) string {
				return run(t, s, scripts.RWRelease, rwKeys, "me", side, "", "", soon, expiry, "PUBLISH", "{k}")
			}}
	}
	return []lease{
		{"plain", "k",
			func(how string, ms int) string { return acquire(t, s, "k", "me", how, ms) },
			func(how string, ms int, expiry any) string {
				return run(t, s, scripts.Extend, []string{"k"}, "me", ms, soon, how, expiry)
			},
			func(expiry any) string { return release(t, s, "me", 0, expiry) }},
		rw("read", holdsOf("me")+":1"), rw("write", "k"),
	}
}

// TestExpiryTellsWhoMadeIt: a hold that a LOCK makes has an even expiry; each LOCK that joins it, and each RENEW, sets an odd one.
// A LOCK never shortens, and one that may yet fail lengthens by a ms at most, however often it is said.
func TestExpiryTellsWhoMadeIt(t *testing.T) {
	s := testredis.Start(t)
	for _, l := range leases(t, s) {
		s.Do(t, "FLUSHALL")
		// is checks a reply to LOCK or RENEW: what it says is what Redis has.
		is := func(reply string, made, expiry int64, ms int64) {
			t.Helper()
			if at := s.Do(t, "PEXPIRETIME", l.key).(int64); at != expiry {
				t.Errorf("%s: %s, and Redis has %d", l.kind, reply, at)
			}
			about(t, s, l.key, ms+5)
			if lasts := left(t, s, "k"); lasts < left(t, s, l.key)-50 {
				t.Errorf("%s: %s, and the hash ends before it", l.kind, reply)
			}
			if made == 1 != (expiry%2 == 0) {
				t.Errorf("%s: %s", l.kind, reply)
			}
		}
		reply := l.take("lengthen", 600000)
		first := numbers(t, reply)
		if first[0] != 1 || first[1] != 1 {
			t.Fatal(l.kind, reply)
		}
		is(reply, 1, first[4], 600000)
		last := first[4]
		for _, ms := range []int{600000, 1000, 900000, 1000} { // sent again, shorter, longer
			reply := l.take("lengthen", ms)
			next := numbers(t, reply)
			if next[1] != 0 || next[4] < last {
				t.Errorf("%s, %d ms after %d: %s", l.kind, ms, last, reply)
			}
			is(reply, 0, next[4], max(600000, int64(ms), (next[2]+1000)/1000*1000))
			last = next[4]
		}
		for _, how := range []string{"renew", "lengthen", "renew"} {
			reply := l.renew(how, 3600000, "")
			next := numbers(t, reply)
			if next[0] != 1 {
				t.Errorf("%s, %s: %s", l.kind, how, reply)
			}
			is(reply, 0, next[2], 3600000)
			last = next[2]
		}
		if next := numbers(t, l.renew("lengthen", 1000, "")); next[2] < last {
			t.Errorf("%s: a RENEW that is sent again shortened the lease to %d ms", l.kind, next[1])
		}
		reply = l.renew("renew", 20000, "")
		is(reply, 0, numbers(t, reply)[2], 20000)
		for range 3 {
			want(t, fmt.Sprint(numbers(t, l.take("join", 600000))[4]), fmt.Sprint(numbers(t, reply)[2]))
		}
		want(t, fmt.Sprint(numbers(t, l.take("renew", 10000))[1]), "0")
		about(t, s, l.key, 10005)
		want(t, l.giveBack(""), "1")
		made := numbers(t, l.take("join", 600000))
		is(fmt.Sprint(made), 1, made[4], 600000)
		want(t, fmt.Sprint(numbers(t, l.take("join", 600000))[4]), fmt.Sprint(made[4]+1))
	}
}

// TestGivenBackByExpiry: what is given back without the owner's asking is given back only if it still has exactly the expiry that its maker set.
func TestGivenBackByExpiry(t *testing.T) {
	s := testredis.Start(t)
	for _, l := range leases(t, s) {
		for name, meanwhile := range map[string]func(){
			"joined":            func() { l.take("lengthen", 1000) },
			"renewed":           func() { l.renew("renew", 60000, "") },
			"renewed again":     func() { l.renew("lengthen", 1000, "") },
			"a TTL by hand":     func() { s.Do(t, "PEXPIRE", l.key, 77777) },
			"persisted by hand": func() { s.Do(t, "PERSIST", l.key) },
			"made anew":         func() { l.giveBack(""); l.take("lengthen", 90000) },
		} {
			if name == "persisted by hand" && l.kind == "read" {
				continue // such a hold is none
			}
			s.Do(t, "FLUSHALL")
			made := numbers(t, l.take("lengthen", 60000))[4]
			meanwhile()
			before, _ := record(t, s)
			want(t, l.kind+", "+name+": "+l.giveBack(made), l.kind+", "+name+": -1")
			want(t, l.renew("keep", 60000, made), "[-1 0 0]")
			if after, _ := record(t, s); !slices.Equal(before, after) {
				t.Errorf("%s, %s: %q became %q", l.kind, name, before, after)
			}
			want(t, l.giveBack(""), "1") // the owner's own UNLOCK
			want(t, contents(t, s), "")
		}
		s.Do(t, "FLUSHALL")
		made := numbers(t, l.take("lengthen", 60000))[4]
		for range 3 { // a MULTILOCK sets the leases of its locks
			kept := numbers(t, l.renew("keep", 90000, made))
			if kept[0] != 1 || kept[2]%2 != 0 {
				t.Fatal(l.kind, kept)
			}
			about(t, s, l.key, 90005)
			made = kept[2]
		}
		want(t, l.giveBack(made), "1")
		want(t, contents(t, s), "")
		want(t, l.giveBack(made), "-1")
	}
}

// TestGivenBackBesideTheOtherSide: an owner that reads and writes gives back one side by its expiry, and keeps the other.
func TestGivenBackBesideTheOtherSide(t *testing.T) {
	s := testredis.Start(t)
	all := leases(t, s)
	read, write := all[1], all[2]
	wrote := numbers(t, write.take("lengthen", 60000))[4]
	did := numbers(t, read.take("lengthen", 30000))[4]
	want(t, read.giveBack(did), "1")
	want(t, hash(t, s), "k me:write=1 mode=write")
	want(t, write.giveBack(wrote), "1")
	want(t, contents(t, s), "")

	// A read hold that lasts longer than the write hold lengthens the hash, which is then no longer as the write hold's maker left it.
	wrote = numbers(t, write.take("lengthen", 30000))[4]
	did = numbers(t, read.take("lengthen", 60000))[4]
	want(t, write.giveBack(wrote), "-1")
	want(t, read.giveBack(did), "1")
	want(t, write.giveBack(wrote), "-1")

	// Another reader stays.
	s.Do(t, "FLUSHALL")
	run(t, s, scripts.RWAcquire, rwKeys, "you", "read", "lengthen", 0, 60000, soon, "", "{k}", "", 0, "PUBLISH")
	did = numbers(t, read.take("lengthen", 30000))[4]
	want(t, read.giveBack(did), "1")
	want(t, hash(t, s), "k mode=read you=1")
	about(t, s, "k", 60005)
	if left := contents(t, s); strings.Contains(left, holdsOf("me")) {
		t.Error(left)
	}
}

// TestRenewToLess: the hash of a read/write lock lasts no longer than the reader that has a shorter lease now, and no less than whoever else reads.
func TestRenewToLess(t *testing.T) {
	s := testredis.Start(t)
	all := leases(t, s)
	read, write := all[1], all[2]
	read.take("lengthen", 60000)
	read.renew("renew", 20000, "")
	about(t, s, "k", 20005)
	run(t, s, scripts.RWAcquire, rwKeys, "you", "read", "lengthen", 0, 40000, soon, "", "{k}", "", 0, "PUBLISH")
	read.renew("renew", 10000, "")
	about(t, s, read.key, 10005)
	about(t, s, "k", 40005)

	s.Do(t, "FLUSHALL")
	write.take("lengthen", 60000)
	read.take("lengthen", 60000)
	read.renew("renew", 20000, "")
	about(t, s, "k", 60005)
	write.renew("renew", 10000, "")
	about(t, s, "k", 20005) // it reads for so long
}

// TestConnectionsTellNoExpiry: what a connection does has no expiry to tell.
func TestConnectionsTellNoExpiry(t *testing.T) {
	s := testredis.Start(t)
	for _, reply := range []string{acquire(t, s, "k", "me", 1, 1000), acquire(t, s, "k", "me", 2, 1000)} {
		want(t, fmt.Sprint(numbers(t, reply)[4]), "0")
	}
}
