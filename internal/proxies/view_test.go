package proxies

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lock"
	"github.com/lockproxy/lockproxy/internal/lockstore"
)

const (
	idA = "aaaaaaaa-1111-1111-1111-111111111111"
	idB = "bbbbbbbb-2222-2222-2222-222222222222"
	idC = "cccccccc-3333-3333-3333-333333333333"
)

// answerOf is an answer of a proxy; each lock is name:held:waited, in seconds.
func answerOf(id string, of int, locks ...string) Answer {
	a := Answer{Proxy: Proxy{ID: id}, Of: of}
	for _, text := range locks {
		var l Lock
		part := strings.Split(text, ":")
		l.Name = part[0]
		fmt.Sscan(part[1], &l.Held)
		fmt.Sscan(part[2], &l.Waited)
		if l.Held *= 1000; l.Held > 0 {
			l.Holding, l.Holders = 1, []lock.Entry{{Proxy: id, Holder: lock.Holder{Owned: lockstore.Owned{Owner: id + ":1"}, Held: l.Held}}}
		}
		if l.Waited *= 1000; l.Waited > 0 {
			l.Waiting, l.Waiters = 1, []lock.Entry{{Proxy: id, Place: 1, Waited: l.Waited}}
		}
		a.Locks = append(a.Locks, l)
	}
	return a
}

func TestMerge(t *testing.T) {
	t.Parallel()
	a, b := answerOf(idA, 1000, "x:9:0", "y:5:1", "z:1:0"), answerOf(idB, 2, "y:0:7", "w:7:0")
	for sort, want := range map[string]string{"": "y 1 1+1, w 1 0", "held": "x 1 0, w 1 0", "name": "w 1 0, x 1 0"} {
		all, of := merge([]Answer{a, b}, Question{Sort: sort, Locks: 2})
		var got []string
		for _, l := range all {
			waiting := fmt.Sprint(l.Waiting)
			if l.Waiting == 2 {
				waiting = "1+1"
			}
			got = append(got, fmt.Sprint(l.Name, " ", l.Holding, " ", waiting))
		}
		if of != 1001 || strings.Join(got, ", ") != want {
			t.Errorf("by %q: %q of %d", sort, got, of)
		}
	}
	if a.Locks[1].Waiting != 1 {
		t.Error("an answer was changed")
	}
}

// What several proxies know of one named owner's hold is shown once, by the one that is sure of it for longest.
func TestOneHoldOfSeveralProxies(t *testing.T) {
	t.Parallel()
	of := func(id string, left int64) Answer {
		return Answer{Of: 1, Locks: []Lock{{Name: "k", Holding: 1, Holders: []lock.Entry{{Proxy: id, Left: left, Holder: lock.Holder{Owned: lockstore.Owned{Owner: "job"}}}}}}}
	}
	all, n := merge([]Answer{of(idA, 1), of(idB, 3), of(idC, 2)}, Question{Locks: 5})
	if n != 1 || len(all) != 1 || all[0].Holding != 1 || len(all[0].Holders) != 1 || all[0].Holders[0].Proxy != idB {
		t.Errorf("%d, %+v", n, all)
	}
}

// Who does not answer is there as long as Redis counts a listener more, and gone otherwise.
func TestStates(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, c := range map[string]struct {
		answered string // by which of three, of which the third was not known before
		others   int
		want     string
		nameless int
	}{
		"all answer":            {"ab", 2, "a up 1h0m0s, b up 1h0m0s", 0},
		"a new one":             {"abc", 3, "a up 1h0m0s, b up 1h0m0s, c up 0s", 0},
		"one is silent":         {"a", 2, "a up 1h0m0s, b down 0s", 0},
		"one has gone":          {"a", 1, "a up 1h0m0s, b gone 0s", 0},
		"one of two has gone":   {"", 1, "a down 0s, b gone 0s", 0},
		"all have gone":         {"", 0, "a gone 0s, b gone 0s", 0},
		"Redis does not count":  {"", -1, "a down 0s, b down 0s", 0},
		"strangers listen":      {"ab", 5, "a up 1h0m0s, b up 1h0m0s", 3},
		"more answer than hear": {"abc", 0, "a up 1h0m0s, b up 1h0m0s, c up 0s", 0},
	} {
		known := []State{{Proxy: Proxy{ID: idB}, State: "up", Since: ago(time.Hour), heard: ago(time.Minute)},
			{Proxy: Proxy{ID: idA}, State: "up", Since: ago(time.Hour), heard: ago(time.Second)}}
		if strings.Contains(c.answered, "c") {
			known = append(known, State{Proxy: Proxy{ID: idC}, heard: now})
		}
		for i := range known {
			if strings.Contains(c.answered, known[i].ID[:1]) {
				known[i].answered = "q"
			}
		}
		all, nameless := states(known, "q", c.others, now)
		var got []string
		for _, s := range all {
			got = append(got, fmt.Sprint(s.ID[:1], " ", s.State, " ", now.Sub(s.Since)))
		}
		if strings.Join(got, ", ") != c.want || nameless != c.nameless {
			t.Errorf("%s: %q, %d", name, got, nameless)
		}
	}
	old := []State{{Proxy: Proxy{ID: idA}, State: "gone", Since: ago(goneFor + time.Second)}}
	if all, _ := states(old, "q", 0, now); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	var many []State
	for i := range 1000 {
		many = append(many, State{Proxy: Proxy{ID: fmt.Sprint(i)}, State: "up"})
	}
	if all, _ := states(many, "q", 0, now); len(all) != mostGone {
		t.Errorf("%d that have gone", len(all))
	}
}

func entry(key string, db int, owner string, waits bool, held time.Duration) (e lock.Entry) {
	e.Key, e.DB, e.Owner = key, db, owner
	if e.Held = held.Milliseconds(); waits {
		e.Place, e.Held, e.Waited = 1, 0, e.Held
	}
	return e
}

// A proxy tells the first of its locks, as they are asked for; a name may be any bytes.
func TestLook(t *testing.T) {
	t.Parallel()
	odd := "b\xff" + strings.Repeat("x", 1000)
	locks := &engine{list: []lock.Entry{entry("a", 0, "1", false, time.Hour), entry(odd, 0, "2", false, time.Second), entry("a", 2, "3", false, time.Minute),
		entry(odd, 0, "4", true, time.Minute), entry(odd, 0, "5", true, time.Second), entry("c", 0, "6", true, time.Hour)}}
	for _, c := range []struct {
		q    Question
		of   int
		want []string
	}{
		{Question{Locks: 9, Of: 9}, 4, []string{"c 0", odd + " 0", "a 0", "a 2"}}, {Question{Locks: 1, Of: 1}, 4, []string{"c 0"}},
		{Question{Locks: 9, Sort: "name"}, 4, []string{"a 0", "a 2", odd + " 0", "c 0"}}, {Question{Locks: 2, Sort: "held"}, 4, []string{"a 0", "a 2"}},
		{Question{Locks: 9, Name: []byte("\xffx")}, 1, []string{odd + " 0"}}, {Question{Locks: 9, Name: []byte("a"), DB: 2, Exact: true}, 1, []string{"a 2"}}, {Question{}, 0, nil},
	} {
		a := Answer{Proxy: Proxy{ID: idA}}
		a.Locks, a.Of = look(c.q, idA, 0, locks.Each)
		wire, ok := read(a.text())
		if !ok {
			t.Fatal(a.text())
		}
		var got []string
		for _, l := range wire.Locks {
			got = append(got, fmt.Sprint(l.Name, " ", l.DB))
		}
		if wire.Of != c.of || !slices.Equal(got, c.want) {
			t.Errorf("%+v: %.80q of %d", c.q, got, wire.Of)
		}
	}
	all, _ := look(Question{Name: []byte("b"), Locks: 9, Of: 1}, idA, 0, locks.Each)
	one := all[0]
	if one.Holding != 1 || one.Waiting != 2 || len(one.Waiters) != 1 || one.Waiters[0].Owner != "4" || one.Waited != 60000 || one.Held != 1000 {
		t.Errorf("%+v", one)
	}
}

// An answer is a page, however long the names are; it says how many locks there are.
func TestAnswerIsBounded(t *testing.T) {
	t.Parallel()
	long := func(i int) string { return fmt.Sprintf("%04d", i) + strings.Repeat("\xff<\x00", 1300) }
	many := &engine{}
	for i := range 500 {
		e := entry(long(i), 0, strings.Repeat("\xff", 256), false, time.Second)
		e.Name, e.User, e.Addr = strings.Repeat("\x01", 10000), strings.Repeat("<", 10000), strings.Repeat("x", 10000)
		many.list = append(many.list, e)
	}
	for i := range 500 {
		many.list = append(many.list, entry(long(0), 0, strings.Repeat("\xff", 250)+fmt.Sprint(i), true, time.Second))
	}
	for _, q := range []Question{{Locks: MostRows, Of: MostOf}, {Locks: 1, Of: MostOf, Name: []byte(long(0)), Exact: true}} {
		told := Answer{Proxy: Proxy{ID: idA}}
		told.Locks, told.Of = look(q, idA, 0, many.Each)
		text := told.text()
		if a, ok := read(text); !ok || len(text) > mostAnswer || len(a.Locks) == 0 || a.Locks[0].Name != long(0) || a.Locks[0].Waiting != 500 {
			t.Errorf("%d bytes, %d of %d locks", len(text), len(a.Locks), a.Of)
		}
	}
	for _, text := range []string{`{"locks":[` + strings.Repeat("{},", MostRows) + `{}]}`, `{"locks":[` + strings.Repeat("null,", 1<<20) + `{}]}`,
		`{"locks":[{"holders":[` + strings.Repeat("{},", MostOf) + `{}]}]}`, `{"locks":{}}`, `{"locks":[[]]}`, `{"locks":"x"}`} {
		if a, ok := read(`{"id":"` + idA + `",` + text[1:]); ok {
			t.Errorf("%.40s is read: %d", text, len(a.Locks))
		}
	}
}
