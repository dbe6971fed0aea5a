package tally

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/scripts"
)

// What the nodes said, in the order of vote.lua: code, count, ttl, token or who holds it, raised.
var (
	gave    = func(ttl, token int64) []int64 { return []int64{1, 1, ttl, token, 1} }
	entered = func(ttl, token int64) []int64 { return []int64{1, 1, ttl, token, 0} }
	denied  = func(ttl, who int64) []int64 { return []int64{0, 0, ttl, who} }
	only    = func(code int64) []int64 { return []int64{code, 0, 0, 0} }
)

func TestTallyOfVotes(t *testing.T) {
	for _, c := range []struct {
		what    string
		nodes   int
		said    [][]int64
		verdict Verdict
		clear   bool
		had     bool
		lasts   int64
		free    int64
	}{
		{"nobody answered", 3, nil, NoQuorum, false, false, 0, 0},
		{"one gave it", 3, [][]int64{gave(1000, 0)}, NoQuorum, false, false, 0, 0},
		{"two gave it", 3, [][]int64{gave(1000, 0), gave(2000, 0)}, Won, true, false, 988, 0},
		{"all gave it", 3, [][]int64{gave(500, 0), gave(1000, 0), gave(2000, 0)}, Won, true, false, 988, 0},
		{"two of four", 4, [][]int64{gave(1000, 0), gave(1000, 0), denied(9, 1), denied(9, 2)}, Split, true, false, 0, 9},
		{"three of five", 5, [][]int64{gave(1000, 0), gave(900, 0), gave(800, 0)}, Won, true, false, 790, 0},
		{"a lease that is all drift", 3, [][]int64{gave(2, 0), gave(2, 0)}, Won, true, false, 0, 0},
		{"one other has it", 3, [][]int64{denied(700, 7), denied(900, 7)}, Held, true, false, 0, 900},
		{"one other has it, a third gave it", 3, [][]int64{denied(700, 7), denied(900, 7), gave(1, 0)}, Held, true, false, 0, 700},
		{"two others have one each", 3, [][]int64{denied(700, 7), denied(900, 8), gave(1, 0)}, Split, true, false, 0, 700},
		{"two others, and one that says nothing", 3, [][]int64{denied(700, 7), denied(900, 8)}, Split, false, false, 0, 900},
		{"one other has two, two say nothing", 5, [][]int64{denied(700, 7), denied(900, 7), gave(1, 0)}, Split, false, false, 0, 900},
		{"one other has three, two say nothing", 5, [][]int64{denied(700, 7), denied(900, 7), denied(800, 7)}, Held, true, false, 0, 900},
		{"three others have one each", 3, [][]int64{denied(700, 7), denied(900, 8), denied(800, 9)}, Split, true, false, 0, 800},
		{"several readers", 3, [][]int64{denied(700, 0), denied(900, 0)}, Held, true, false, 0, 900},
		{"three asked at once", 5, [][]int64{gave(1, 0), gave(1, 0), denied(5, 7), denied(6, 7), denied(4, 8)}, Split, true, false, 0, 4},
		{"one refused, one away", 3, [][]int64{denied(700, 7)}, NoQuorum, false, false, 0, 0},
		{"one gave it, one refused, one away", 3, [][]int64{gave(1000, 0), denied(700, 7)}, Split, false, false, 0, 700},
		{"no lease known", 3, [][]int64{denied(-1, 7), denied(-1, 7)}, Held, true, false, 0, 0},
		{"another kind", 3, [][]int64{only(scripts.OtherKind), only(scripts.OtherKind)}, OtherLock, true, false, 0, 0},
		{"it reads", 3, [][]int64{only(scripts.Upgrade), only(scripts.Upgrade), gave(1, 0)}, Upgrade, true, false, 0, 0},
		{"the kinds differ", 3, [][]int64{only(scripts.OtherKind), only(scripts.Upgrade)}, Split, true, false, 0, 0},
		{"had it", 3, [][]int64{entered(1000, 0), entered(1000, 0)}, Won, true, true, 988, 0},
		{"may have had it", 3, [][]int64{entered(1000, 0), gave(1000, 0)}, Won, false, true, 988, 0},
		{"left behind on one", 3, [][]int64{entered(1000, 0), gave(1000, 0), gave(1000, 0)}, Won, true, false, 988, 0},
		{"had it on one, another kind on one", 3, [][]int64{entered(1000, 0), gave(1000, 0), only(scripts.OtherKind)}, Won, true, false, 988, 0},
		{"had it on one, another one has the rest", 3, [][]int64{entered(1000, 0), denied(5, 7), denied(6, 7)}, Held, true, false, 0, 5},
	} {
		v := Tally{c.nodes, c.said}
		if v.Verdict() != c.verdict || v.Clear() != c.clear || v.Lasts() != c.lasts || c.verdict == Won && v.Had() != c.had ||
			(c.verdict == Held || c.verdict == Split) && v.Free() != c.free {
			t.Errorf("%s: verdict %d, clear %v, had %v, lasts %d, free in %d", c.what, v.Verdict(), v.Clear(), v.Had(), v.Lasts(), v.Free())
		}
	}
}

func TestTallyOfUnrenewed(t *testing.T) {
	ended := []int64{1, 1, 1000, 0, -1}
	for _, c := range []struct {
		what  string
		said  [][]int64
		want  bool
		clear bool
	}{
		{"two say that nobody renewed it", [][]int64{ended, ended}, true, true},
		{"one was renewed", [][]int64{ended, ended, entered(1000, 0)}, true, true},
		{"two were renewed", [][]int64{ended, entered(1000, 0), entered(1000, 0)}, false, true},
		{"one says so, one does not", [][]int64{ended, entered(1000, 0)}, false, false},
		{"one says so, one is new", [][]int64{ended, gave(1000, 0)}, true, false}, // the third one alone can be no majority that renews it
		{"one says so", [][]int64{ended}, false, false},
		{"it was renewed", [][]int64{entered(1000, 0), entered(1000, 0)}, false, true},
	} {
		v := Tally{3, c.said}
		if v.Unrenewed() != c.want || v.Clear() != c.clear {
			t.Errorf("%s: %v, clear %v", c.what, v.Unrenewed(), v.Clear())
		}
	}
}

func TestTallyOfTokens(t *testing.T) {
	for _, c := range []struct {
		what string
		said [][]int64
		want int64
	}{
		{"the highest", [][]int64{gave(1, 5), gave(1, 9)}, 9},
		{"entered, and higher elsewhere", [][]int64{entered(1, 9), gave(1, 20), entered(1, 9)}, 20},
		{"refusals name no token", [][]int64{gave(1, 5), gave(1, 6), denied(1, 1<<40)}, 6},
	} {
		if got := (Tally{3, c.said}).Token(); got != c.want {
			t.Errorf("%s: %d, not %d", c.what, got, c.want)
		}
	}
	for _, c := range []struct {
		tokens []int64
		nodes  int
		want   int64
		ok     bool
	}{
		{nil, 3, 0, false},
		{[]int64{7, 7, 7}, 3, 7, true},
		{[]int64{7, 9, 7}, 3, 7, true},  // the 9 was told to nobody
		{[]int64{9, 7, 3}, 3, 7, true},  // the third missed it
		{[]int64{7, 7}, 3, 7, true},     // whatever the third has
		{[]int64{9, 7}, 3, 7, false},    // 9, if the third has it as well
		{[]int64{0, 0, 0}, 3, 0, false}, // none was given
		{[]int64{7, 0}, 3, 0, false},
		{[]int64{7}, 3, 0, false},
		{[]int64{5, 5, 5}, 5, 5, true},
		{[]int64{9, 5, 5, 5}, 5, 5, true},
		{[]int64{9, 5, 5}, 5, 5, false},
		{[]int64{5, 5, 5}, 4, 5, true},
		{[]int64{5, 5}, 4, 0, false},
	} {
		if got, ok := LastToken(c.tokens, c.nodes); ok != c.ok || ok && got != c.want {
			t.Errorf("%v of %d: %d %v", c.tokens, c.nodes, got, ok)
		}
	}
}

func TestTallyOfReleases(t *testing.T) {
	yes, count, none, elsewhere := []int64{1, 0}, []int64{0, 1}, []int64{-1, 0}, []int64{-1, 1}
	for _, c := range []struct {
		what       string
		said       [][]int64
		code, left int64
		ok         bool
		back       int64 // the code of an attempt that is taken back
	}{
		{"nobody answered", nil, 0, 0, false, 0},
		{"one answered", [][]int64{yes}, 0, 0, false, 0},
		{"two had it", [][]int64{yes, yes}, 1, 0, true, 1},
		{"one had it, one is away", [][]int64{yes, none}, 1, 0, true, 1},
		{"one had it, two had not", [][]int64{yes, none, none}, -1, 0, true, 1},
		{"none had it", [][]int64{none, none}, -1, 0, true, -1},
		{"it ended elsewhere", [][]int64{none, elsewhere}, -1, 1, true, -1},
		{"another kind", [][]int64{only(scripts.OtherKind), only(scripts.OtherKind)}, scripts.OtherKind, 0, true, -1},
		{"others count on it", [][]int64{count, count, yes}, 1, 0, true, 0},
		{"others count on one, one is away", [][]int64{count, yes}, 1, 0, true, 0},
		{"others count on one of three", [][]int64{count, yes, yes}, 1, 0, true, 1},
		{"others count on it, one had it not", [][]int64{count, count, none}, 1, 0, true, 0},
		{"others count on one, one had it not, one is away", [][]int64{count, none}, 1, 0, true, 0},
		{"others count on one of three, the others had it not", [][]int64{count, none, none}, -1, 0, true, -1},
		{"two had it, one had it not", [][]int64{yes, yes, none}, 1, 0, true, 1},
	} {
		v := Tally{3, c.said}
		if code, left, ok := v.Freed(); code != c.code || left != c.left || ok != c.ok {
			t.Errorf("%s: freed %d %d %v", c.what, code, left, ok)
		}
		if code, left, ok := v.Retracted(); ok != c.ok || ok && (code != c.back || (left == 1) != (c.back == 0)) {
			t.Errorf("%s: retracted %d %d %v", c.what, code, left, ok)
		}
	}
}

// A release may be overtaken where the nodes that have not noted an attempt, or did not answer, are a majority; not when all have answered.
func TestTallyOfOvertakenReleases(t *testing.T) {
	a, b, both, none, many, unnoted := []int64{1, 0, 7}, []int64{1, 0, 8}, []int64{1, 0, 7, 8}, []int64{-1, 0}, []int64{1, 0, 0}, []int64{1, 0}
	for _, c := range []struct {
		nodes int
		said  [][]int64
		want  bool
	}{
		{3, [][]int64{a, none}, true},
		{3, [][]int64{a, a}, false},
		{3, [][]int64{a, b}, true},
		{3, [][]int64{a, both}, true},
		{3, [][]int64{both, both}, false},
		{3, [][]int64{a, b, none}, false},
		{3, [][]int64{a, many}, true},
		{3, [][]int64{a, unnoted}, true},
		{3, [][]int64{none, none}, false},
		{3, [][]int64{a}, false}, // that UNLOCK fails
		{5, [][]int64{a, a, none}, true},
		{5, [][]int64{a, a, a, none}, false},
		{5, [][]int64{a, a, a}, false},
		{5, [][]int64{a, a, both}, true},
		{5, [][]int64{a, none, none}, true},
	} {
		if got := (Tally{c.nodes, c.said}).Overtaken(); got != c.want {
			t.Errorf("%d nodes, %v: %v", c.nodes, c.said, got)
		}
	}
}

func TestTallyOfRenewals(t *testing.T) {
	for _, c := range []struct {
		nodes int
		said  []int64
		want  int64
	}{
		{3, nil, lockstore.Undecided},
		{3, []int64{1, 1}, 1},
		{3, []int64{1, 0}, lockstore.Undecided},
		{3, []int64{0, 0}, 0},
		{3, []int64{0, 0, 1}, 0},
		{3, []int64{2, 2}, 2},
		{3, []int64{2, 0}, 2},
		{3, []int64{2, 1, 1}, 1},
		{3, []int64{2, 2, 1}, 2},
		{3, []int64{lockstore.Undecided, lockstore.Undecided, 1}, lockstore.Undecided},
		{5, []int64{0, 0, 2}, 2},
		{5, []int64{0, 0, 0, 2}, 0},
		{5, []int64{1, 1, 0, 0}, lockstore.Undecided},
	} {
		v := Tally{Nodes: c.nodes}
		for _, one := range c.said {
			v.Said = append(v.Said, []int64{one})
		}
		if got := v.Renewal(0); got != c.want {
			t.Errorf("%v of %d: %d, not %d", c.said, c.nodes, got, c.want)
		}
	}
}
