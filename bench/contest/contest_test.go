package contest

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	s, err := parse(strings.Fields("-addr a:1 -lock x -clients 3 -shared -warm 0.5 -seconds 2"))
	if want := (Settings{"a:1", "x", 3, true, 500 * time.Millisecond, 2 * time.Second}); s != want || err != nil {
		t.Errorf("%+v, %v", s, err)
	}
	if s.Addr = "a:1,b:2"; s.AddrOf(0) != "a:1" || s.AddrOf(1) != "b:2" || s.AddrOf(2) != "a:1" {
		t.Error("the clients do not have the addresses in turn")
	}
	if s.Key(2) != s.Key(0) {
		t.Error("shared, and yet two locks")
	}
	if s.Shared = false; s.Key(2) == s.Key(0) {
		t.Error("a lock for each, and yet one")
	}
}

// turns lets so many pairs happen; then the clients fail.
type turns struct {
	mutex sync.Mutex
	left  int
}

var errOver = errors.New("over")

func (l *turns) client(int) (Pair, error) {
	return Pair{Take: func() error {
		l.mutex.Lock()
		if l.left == 0 {
			l.mutex.Unlock()
			return errOver
		}
		l.left--
		return nil
	}, Release: func() error { l.mutex.Unlock(); return nil }}, nil
}

func TestLoops(t *testing.T) {
	l := &turns{left: 300}
	l.mutex.Lock() // nobody begins before we sample
	r, err := start(Settings{Clients: 8, Shared: true}, Contestant{Start: func(Settings) (func(int) (Pair, error), error) { return l.client, nil }})
	if err != nil {
		t.Fatal(err)
	}
	r.sampling.Store(true)
	l.mutex.Unlock()
	if err := r.pass(time.Minute); err != errOver {
		t.Fatal(err)
	}
	// Whoever had the last turn counts it after the next has seen that it is over.
	for end := time.Now().Add(time.Minute); r.pairs.Load() < 300 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if n := r.pairs.Load(); n != 300 {
		t.Errorf("%d pairs", n)
	}
	if n := r.changes.Load(); n < 1 || n > 300 {
		t.Errorf("of 300 pairs %d by another client", n)
	}
	if p50, p99 := r.percentiles(); p50 <= 0 || p99 < p50 {
		t.Errorf("p50 %v µs, p99 %v µs", p50, p99)
	}
}

func TestTwoHoldersAreSeen(t *testing.T) {
	r := &loops{shared: true}
	nothing := func() error { return nil }
	for i, step := range []struct {
		client  int64
		changed bool
	}{{1, true}, {1, false}, {2, true}, {1, true}} {
		if changed, err := r.once(Pair{nothing, nothing}, step.client); changed != step.changed || err != nil {
			t.Errorf("pair %d: changed %v, %v", i, changed, err)
		}
	}
	r.holders.Store(1) // somebody else is between taking and giving back
	if _, err := r.once(Pair{nothing, nothing}, 1); err == nil || !strings.Contains(err.Error(), "hold the one lock") {
		t.Errorf("error %v", err)
	}
	if _, err := r.once(Pair{Take: func() error { return errOver }}, 1); err != errOver {
		t.Errorf("error %v", err)
	}
}

// TestShares: who still waits counts to the longest wait, and to the fewest pairs.
func TestShares(t *testing.T) {
	began := time.Now().Add(-time.Second)
	r := &loops{took: make([]times, 3)}
	r.took[0].add(5*time.Millisecond, true)
	r.took[0].add(time.Millisecond, false)
	r.took[1].add(3*time.Second, true)
	if longest, least, most := r.shares(began); longest != 3e6 || least != 0 || most != 2 {
		t.Errorf("%v µs, %d to %d", longest, least, most)
	}
	if longest, _, _ := (&loops{took: make([]times, 1)}).shares(began); longest < 1e6 {
		t.Errorf("who has waited for a second has waited for %v µs", longest)
	}
	if len(r.took[0].all) != 1 {
		t.Errorf("%v", r.took[0].all)
	}
}
