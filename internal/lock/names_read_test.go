package lock

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

const (
	someUUID    = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
	anotherUUID = "11111111-2222-3333-4444-555555555555"
)

// pieces are all texts of up to three parts.
func pieces(parts []string) []string {
	all := []string{""}
	for from := 0; from < len(parts)*(len(parts)+1)+1; from++ {
		for _, part := range parts {
			all = append(all, all[from]+part)
		}
	}
	return all
}

// TestHoldKeysTellLocksAndOwnersApart: no two pairs of a lock and an owner have the same keys for their read holds, or the same
// registration, and an owner is read from its field again.
func TestHoldKeysTellLocksAndOwnersApart(t *testing.T) {
	names := pieces([]string{"a", ":b", "{a}", "}", ":" + someUUID, ":" + anotherUUID + ":7"})
	owners := slices.DeleteFunc(pieces([]string{"b", ":", "%", "3A", "7"}), func(o string) bool { return !ValidOwner(o) })
	owners = append(owners, someUUID+":7", anotherUUID+":4")
	holds, watches := map[string]holdID{}, map[string]holdID{}
	for _, name := range names {
		for _, owner := range owners {
			id := holdID{key: name, owner: owner, kind: Read}
			if got := rwOwner(id.field()); got != owner {
				t.Fatalf("%q of lock %q has the field %q, which is read as %q", owner, name, id.field(), got)
			}
			for _, same := range []struct {
				seen map[string]holdID
				key  string
			}{{holds, id.keys()[1]}, {watches, watchKey(name, owner)}} {
				if other, taken := same.seen[same.key]; taken && other != id {
					t.Fatalf("%q of %q and %q of %q share %q", owner, name, other.owner, other.key, same.key)
				}
				same.seen[same.key] = id
			}
		}
	}
	if len(holds) < 10000 {
		t.Fatal(len(holds))
	}
}

// TestHoldKeysAreRedissons: a connection's, and those of an owner whose name has no colon.
func TestHoldKeysAreRedissons(t *testing.T) {
	for _, c := range []struct{ name, owner, want string }{
		{"orders", someUUID + ":7", "{orders}:" + someUUID + ":7:rwlock_timeout"},
		{"{t}:" + someUUID, someUUID + ":7", "{t}:" + someUUID + ":" + someUUID + ":7:rwlock_timeout"},
		{"{t}:o", "job", "{t}:o:job:rwlock_timeout"},
		{"o", "b:job", "{o}:b%3Ajob:rwlock_timeout"},
		{"{o}", "job", "{o}:%%job:rwlock_timeout"},
		{"{t}:" + someUUID, "7", "{t}:" + someUUID + ":%%7:rwlock_timeout"},
	} {
		if got := (holdID{key: c.name, owner: c.owner, kind: Read}).keys()[1]; got != c.want {
			t.Errorf("%s of %s: %s, want %s", c.owner, c.name, got, c.want)
		}
	}
}

// TestReadHoldsOfLookalikesAreApart: who reads one lock keeps on reading when a hold ends whose names would make the same key.
func TestReadHoldsOfLookalikesAreApart(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), Options{})
	for _, c := range []struct{ lock, owner, like, likeOwner string }{
		{"{a}:b", "", "a", "b:"},         // the connection of the one, with a colon more for the other
		{"{c}:b", "job", "c", "b:job"},   // two named owners
		{"{d}", "job", "d", "job"},       // one is the other's hash tag
		{"{e}", "", "e", ""},             // the same for one connection
		{"f", "b:job", "{f}:b", "job"},   // the other way round
		{"g", "", "{g}:" + someUUID, ""}, // nothing alike: a control
	} {
		reader, _ := client(m)
		long, _ := client(m)
		writer, _ := client(m)
		likeOwner := c.likeOwner
		if strings.HasSuffix(likeOwner, ":") {
			likeOwner += reader.Owner()
		}
		mustLock(t, reader, Request{Key: c.lock, Kind: Read, Owner: c.owner})
		mustLock(t, long, Request{Key: c.lock, Kind: Read})
		mustLock(t, reader, Request{Key: c.like, Kind: Read, Owner: likeOwner})
		mustUnlock(t, reader, UnlockRequest{Key: c.like, Side: Read, Owner: likeOwner}, true)
		mustUnlock(t, long, UnlockRequest{Key: c.lock}, true)
		if _, err := writer.Lock(t.Context(), Request{Key: c.lock, Kind: Write}); err != ErrNotAcquired {
			t.Errorf("%s beside %s: a writer got %v while somebody reads", c.lock, c.like, err)
		}
		in, err := m.Info(t.Context(), 0, c.lock)
		want := c.owner
		if want == "" {
			want = reader.Owner()
		}
		if err != nil || len(in.Holders) != 1 || in.Holders[0].Owner != want || !in.Holders[0].Local {
			t.Errorf("%s: %+v %v", c.lock, in.Holders, err)
		}
		mustUnlock(t, reader, UnlockRequest{Key: c.lock, Owner: c.owner}, true)
	}
}

// TestWriterLooksLikeNoReader: the keys of a reader `write` of lock `{a}:job` do not keep lock `a` when its writer `job` gives it back.
func TestWriterLooksLikeNoReader(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), Options{})
	a, _ := client(m)
	mustLock(t, a, Request{Key: "{a}:job", Kind: Read, Owner: "write", Lease: 600000})
	mustLock(t, a, Request{Key: "a", Kind: Write, Owner: "job"})
	mustUnlock(t, a, UnlockRequest{Key: "a", Owner: "job"}, true)
	if got := hash(t, s, "a"); len(got) > 0 {
		t.Fatalf("left: %v", got)
	}
}

// TestKeysOfOtherLocksAreNoLocks: a lock at such a name would be overwritten by whoever takes the other.
func TestKeysOfOtherLocksAreNoLocks(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), Options{})
	a, _ := client(m)
	for _, name := range []string{"{a}:job:rwlock_timeout:1", "lockproxy_watch:{a}:job", "lockproxy_fair:{a}"} {
		for _, k := range []Kind{Plain, Read, Write} {
			_, err := a.Lock(t.Context(), Request{Key: name, Kind: k})
			wantCode(t, err, "ERR")
		}
	}
	mustLock(t, a, Request{Key: "rwlock_timeout:1"})
	mustUnlock(t, a, UnlockRequest{Key: "rwlock_timeout:1"}, true)
	if n := s.Do(t, "DBSIZE").(int64); n != 0 {
		t.Fatal(n)
	}
}
