package lockstore

import (
	"slices"
	"testing"
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

// holdKeys is what the keys of an owner's read holds begin with: see hold_key in scripts/rw.lua.
func holdKeys(id ID) string { return ReadPrefix(id.Key) + ":" + id.Field() + ":rwlock_timeout" }

// TestHoldKeysTellLocksAndOwnersApart: no two pairs of a lock and an owner have the same keys for their read holds, and an owner is read from
// its field again.
func TestHoldKeysTellLocksAndOwnersApart(t *testing.T) {
	names := pieces([]string{"a", ":b", "{a}", "}", ":" + someUUID, ":" + anotherUUID + ":7"})
	owners := slices.DeleteFunc(pieces([]string{"b", ":", "%", "3A", "7"}), func(o string) bool { return !ValidOwner(o) })
	owners = append(owners, someUUID+":7", anotherUUID+":4")
	holds := map[string]ID{}
	for _, name := range names {
		for _, owner := range owners {
			id := ID{Key: name, Owner: owner, Kind: Read}
			if got := rwOwner(id.Field()); got != owner {
				t.Fatalf("%q of lock %q has the field %q, which is read as %q", owner, name, id.Field(), got)
			}
			key := holdKeys(id)
			if other, taken := holds[key]; taken && other != id {
				t.Fatalf("%q of %q and %q of %q share %q", owner, name, other.Owner, other.Key, key)
			}
			holds[key] = id
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
		if got := holdKeys(ID{Key: c.name, Owner: c.owner, Kind: Read}); got != c.want {
			t.Errorf("%s of %s: %s, want %s", c.owner, c.name, got, c.want)
		}
	}
}
