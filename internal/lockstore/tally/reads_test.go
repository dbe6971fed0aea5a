package tally

import (
	"reflect"
	"slices"
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/scripts"
)

func TestTallyOfExtensions(t *testing.T) {
	for _, c := range []struct {
		what       string
		said       [][]int64
		code, left int64
		ok         bool
	}{
		{"nobody answered", nil, 0, 0, false},
		{"one has done it", [][]int64{{1, 1}, {-1, 0}}, 0, 0, false},
		{"two have done it", [][]int64{{1, 1}, {1, 1}}, 1, 0, true},
		{"two have not got it", [][]int64{{1, 1}, {-1, 0}, {-1, 0}}, -1, 0, true},
		{"it ended elsewhere", [][]int64{{-1, 0}, {-1, 1}}, -1, 1, true},
		{"another kind", [][]int64{{scripts.OtherKind, 0}, {scripts.OtherKind, 0}}, scripts.OtherKind, 0, true},
	} {
		if code, left, ok := (Tally{3, c.said}).Extended(); code != c.code || left != c.left || ok != c.ok {
			t.Errorf("%s: %d %d %v", c.what, code, left, ok)
		}
	}
}

func TestTallyOfSeen(t *testing.T) {
	has := func(ttl int64) lockstore.Seen {
		return lockstore.Seen{Count: 1, TTL: ttl, Registration: "r", Watched: true}
	}
	for _, c := range []struct {
		what string
		all  []lockstore.Seen
		want lockstore.Seen
	}{
		{"nobody answered", nil, lockstore.Seen{}},
		{"one has it, two have not", []lockstore.Seen{has(1000), {}, {}}, lockstore.Seen{}},
		{"one has it, one is away", []lockstore.Seen{has(1000), {}}, lockstore.Seen{Most: 1000, Registration: "r", Watched: true, Unsure: true}},
		{"one has it that nobody renews, one is away", []lockstore.Seen{{Count: 1, TTL: 1000}, {}}, lockstore.Seen{Most: 1000, Unsure: true}},
		{"two have it, one is away", []lockstore.Seen{has(1000), has(2000)}, lockstore.Seen{Count: 1, TTL: 988, Most: 2000, Registration: "r", Watched: true}},
		{"two have it", []lockstore.Seen{has(1000), has(2000), {}}, lockstore.Seen{Count: 1, TTL: 988, Most: 1000, Registration: "r", Watched: true}},
		{"two have it, with other registrations", []lockstore.Seen{has(1000), {Count: 1, TTL: 900, Registration: "s"}, {Registration: "r"}},
			lockstore.Seen{Count: 1, TTL: 889, Most: 900, Registration: "r"}},
	} {
		if got := Seen(c.all, 3); got != c.want {
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

func TestTallyOfSidesAndForce(t *testing.T) {
	r, w, p := []lockstore.Kind{lockstore.Read}, []lockstore.Kind{lockstore.Write}, []lockstore.Kind{lockstore.Plain}
	for _, c := range []struct {
		what string
		all  [][]lockstore.Kind
		want []lockstore.Kind
	}{
		{"none", [][]lockstore.Kind{nil, nil}, nil},
		{"one of three reads", [][]lockstore.Kind{r, nil, nil}, nil},
		{"one reads, one is away", [][]lockstore.Kind{r, nil}, r},
		{"two write", [][]lockstore.Kind{w, w, nil}, w},
		{"a leftover", [][]lockstore.Kind{{lockstore.Plain, lockstore.Write}, {lockstore.Plain, lockstore.Write}}, w},
		{"plain", [][]lockstore.Kind{p, p}, p},
	} {
		if got := Sides(c.all, 3); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v", c.what, got)
		}
	}
	for _, c := range []struct {
		codes []int64
		want  int64
	}{
		{[]int64{0, 0}, 0}, {[]int64{0, 0, 1}, 1}, {[]int64{scripts.NoLock, scripts.NoLock, 1}, scripts.NoLock},
		{[]int64{scripts.OtherKind, scripts.OtherKind}, scripts.OtherKind}, {[]int64{scripts.NoLock, 1, 1}, 1},
	} {
		if got := Forced(c.codes, 3); got != c.want {
			t.Errorf("%v: %d, not %d", c.codes, got, c.want)
		}
	}
}
