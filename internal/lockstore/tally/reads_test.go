package tally

import (
	"reflect"
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

func TestTallyOfSeen(t *testing.T) {
	plain, reads, writes := lockstore.Seen{Plain: true}, lockstore.Seen{Reads: true}, lockstore.Seen{Writes: true}
	both, unsure := lockstore.Seen{Reads: true, Writes: true}, lockstore.Seen{Unsure: true}
	for _, c := range []struct {
		what  string
		nodes int
		all   []lockstore.Seen
		want  lockstore.Seen
	}{
		{"nobody answered", 3, nil, lockstore.Seen{}},
		{"two have it not", 3, []lockstore.Seen{{}, {}}, lockstore.Seen{}},
		{"one has it, two have it not", 3, []lockstore.Seen{plain, {}, {}}, lockstore.Seen{}},
		{"one has it, one is away", 3, []lockstore.Seen{plain, {}}, unsure},
		{"two have it", 3, []lockstore.Seen{plain, plain, {}}, plain},
		{"two have it, one is away", 3, []lockstore.Seen{plain, plain}, plain},
		{"two read", 3, []lockstore.Seen{reads, reads}, reads},
		{"both sides", 3, []lockstore.Seen{both, both}, both},
		{"two write, one of them reads", 3, []lockstore.Seen{writes, both, {}}, writes},
		{"two write, one of them reads, one is away", 3, []lockstore.Seen{writes, both}, lockstore.Seen{Writes: true, Unsure: true}},
		{"two of five have it, one is away", 5, []lockstore.Seen{plain, plain, {}, {}}, unsure},
		{"one of five has it, one is away", 5, []lockstore.Seen{plain, {}, {}, {}}, lockstore.Seen{}},
	} {
		if got := Seen(c.all, c.nodes); got != c.want {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
}

func TestTallyOfInfos(t *testing.T) {
	a, b := lockstore.Owned{Owner: "a", Kind: lockstore.Plain, Holds: 1}, lockstore.Owned{Owner: "b", Kind: lockstore.Plain, Holds: 3}
	plain := func(ttl, token int64, owners ...lockstore.Owned) lockstore.Info {
		return lockstore.Info{Kind: "plain", TTL: ttl, Token: token, Owners: owners}
	}
	none := lockstore.Info{Kind: "none", TTL: -2}
	for _, c := range []struct {
		what string
		all  []lockstore.Info
		want lockstore.Info
	}{
		{"no lock", []lockstore.Info{none, none}, none},
		{"one has it", []lockstore.Info{plain(1000, 0, a), none, none}, none},
		{"two have it", []lockstore.Info{plain(1000, 7, a), plain(2000, 7, a), none}, lockstore.Info{Kind: "plain", TTL: 988, Token: 7, Fenced: true, Owners: []lockstore.Owned{a}}},
		{"different owners", []lockstore.Info{plain(1000, 0, a), plain(2000, 0, b), none}, lockstore.Info{Kind: "plain", TTL: 988}},
		{"one counts more", []lockstore.Info{plain(1000, 0, b), plain(1000, 0, lockstore.Owned{Owner: "b", Kind: lockstore.Plain, Holds: 1})},
			lockstore.Info{Kind: "plain", TTL: 988, Owners: []lockstore.Owned{{Owner: "b", Kind: lockstore.Plain, Holds: 1}}}},
	} {
		if got := Info(c.all, 3); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
}
