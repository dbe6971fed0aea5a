package tally

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/scripts"
)

// What the nodes said, in the order of vote.lua: code, made, ttl, token or who holds it, expiry.
var (
	gave    = func(ttl, token int64) []int64 { return []int64{1, 1, ttl, token, 0} }
	entered = func(ttl, token int64) []int64 { return []int64{1, 0, ttl, token, 0} }
	denied  = func(ttl, who int64) []int64 { return []int64{0, 0, ttl, who, 0} }
	only    = func(code int64) []int64 { return []int64{code, 0, 0, 0, 0} }
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
		{"had it on one, one is away", 3, [][]int64{entered(1000, 0), gave(1000, 0)}, Won, true, false, 988, 0},
		{"had it on two, given on one", 3, [][]int64{entered(1000, 0), gave(1000, 0), entered(1000, 0)}, Won, true, true, 988, 0},
		{"had it on two of five", 5, [][]int64{entered(1000, 0), entered(1000, 0), gave(1000, 0)}, Won, true, false, 988, 0},
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
	gone, still, none, other := []int64{1, 0}, []int64{0, 1}, []int64{-1, 0}, []int64{scripts.OtherKind, 0}
	for _, c := range []struct {
		what  string
		nodes int
		said  [][]int64
		code  int64
		ok    bool
	}{
		{"nobody answered", 3, nil, 0, false},
		{"one answered", 3, [][]int64{gone}, 0, false},
		{"two had it", 3, [][]int64{gone, gone}, lockstore.Freed, true},
		{"two had it, one had it not", 3, [][]int64{gone, gone, none}, lockstore.Freed, true},
		{"one had it, one had it not, one is away", 3, [][]int64{gone, none}, lockstore.Freed, true},
		{"one had it, two had not", 3, [][]int64{gone, none, none}, lockstore.NotHeld, true},
		{"two had it not, one is away", 3, [][]int64{none, none}, lockstore.NotHeld, true},
		{"two of five had it, one is away", 5, [][]int64{gone, gone, none, none}, lockstore.Freed, true},
		{"one of five had it, one is away", 5, [][]int64{gone, none, none, none}, lockstore.NotHeld, true},
		{"two of five answered", 5, [][]int64{gone, gone}, 0, false},
		{"one side was given back, the other is held", 3, [][]int64{still, still}, lockstore.Freed, true},
		{"two have another kind", 3, [][]int64{other, other, gone}, lockstore.OtherKind, true},
		{"one has another kind", 3, [][]int64{other, none}, lockstore.NotHeld, true},
	} {
		if code, ok := (Tally{c.nodes, c.said}).Freed(); code != c.code || ok != c.ok {
			t.Errorf("%s: %d %v", c.what, code, ok)
		}
	}
}

// A renewal asks for the hold anew, and only the nodes that had it count.
func TestTallyOfRenewals(t *testing.T) {
	had, made, refused, noHold := entered(1000, 0), gave(1000, 0), denied(1000, 7), only(lockstore.NoHold)
	for _, c := range []struct {
		what  string
		nodes int
		said  [][]int64
		want  int64
	}{
		{"nobody answered", 3, nil, lockstore.Undecided},
		{"one had it", 3, [][]int64{had}, lockstore.Undecided},
		{"two had it", 3, [][]int64{had, had}, lockstore.StillThere},
		{"two had it, one has made it", 3, [][]int64{had, made, had}, lockstore.StillThere},
		{"one had it, one has made it", 3, [][]int64{had, made}, lockstore.Undecided},
		{"one had it, two have made it", 3, [][]int64{had, made, made}, lockstore.NotThere},
		{"two have made it", 3, [][]int64{made, made}, lockstore.NotThere},
		{"all have made it", 3, [][]int64{made, made, made}, lockstore.NotThere},
		{"one had it, one refuses it", 3, [][]int64{had, refused}, lockstore.Undecided},
		{"two refuse it", 3, [][]int64{refused, refused}, lockstore.NotThere},
		{"one refuses it, one has made it", 3, [][]int64{made, refused}, lockstore.NotThere},
		{"two have another kind", 3, [][]int64{only(scripts.OtherKind), only(scripts.OtherKind)}, lockstore.NotThere},
		{"two have no hold to enter once more", 3, [][]int64{noHold, noHold}, lockstore.NotThere},
		{"one has no hold to enter once more", 3, [][]int64{noHold, had}, lockstore.Undecided},
		{"two of five had it, three have made it", 5, [][]int64{had, had, made, made, made}, lockstore.NotThere},
		{"two of five had it, one is away", 5, [][]int64{had, had, made, made}, lockstore.Undecided},
		{"three of five had it", 5, [][]int64{had, had, had}, lockstore.StillThere},
	} {
		if got := (Tally{c.nodes, c.said}).Renewed(); got != c.want {
			t.Errorf("%s: %d, not %d", c.what, got, c.want)
		}
	}
}
