package lock

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// LOCKLIST asks clients for their names with no mutex of the engine held, and so does LOCKINFO.
func TestListHoldsUpNobody(t *testing.T) {
	s := testredis.Start(t)
	m := engine(t, s.URL(), ManagerOptions{})
	asked, answer := make(chan struct{}, 4), make(chan struct{})
	c := m.NewClient(ClientInfo{ID: clientNumbers.Add(1), Addr: "test", Name: func() string {
		asked <- struct{}{}
		<-answer
		return "late"
	}})
	mustLock(t, c, Request{Key: "k"})
	names := make(chan string, 2)
	go func() { names <- m.List("", "")[0].Name }()
	go func() {
		in, err := m.Info(context.Background(), 0, "k")
		if err != nil || len(in.Holders) != 1 {
			t.Error(in, err)
		}
		names <- in.Holders[0].Name
	}()
	<-asked
	<-asked
	other, _ := client(m)
	mustLock(t, other, Request{Key: "other"}) // nobody holds it up
	mustUnlock(t, other, UnlockRequest{Key: "other"}, true)
	close(answer)
	if a, b := <-names, <-names; a != "late" || b != "late" {
		t.Error(a, b)
	}
	c.Close(Gone)
}

// A hold whose UNLOCK was surely not done is listed as before.
func TestListAfterAnUnlockThatWasNotSent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		link := w.Proxy("one").Link(s.Addr())
		a, _ := client(m)
		b, _ := client(m)
		for _, c := range []*Client{a, b} {
			mustLock(t, c, Request{Key: "k", Kind: Read})
		}
		link.Cut()
		if _, err := a.Unlock(context.Background(), UnlockRequest{Key: "k"}); !lockstore.NotSent(err) {
			t.Fatal(err)
		}
		link.Heal()
		eventually(t, 10*time.Second, "Redis is back", func() bool {
			return b.Renew(context.Background(), RenewRequest{Key: "k"}) == nil
		})
		if all := m.List("", ""); len(all) != 2 {
			t.Errorf("%d holders, not 2: %+v", len(all), all)
		}
	})
}

// The oldest hold and the longest wait grow until they end.
func TestAges(t *testing.T) {
	m := holding(t, 2)
	age := func(of *telemetry.Figure) (ms int64) {
		m.Figures()[of](func(n int64, _ ...string) { ms = n })
		return ms
	}
	time.Sleep(2 * time.Millisecond)
	first, none := age(telemetry.OldestHold), age(telemetry.LongestWait)
	time.Sleep(2 * time.Millisecond)
	later := age(telemetry.OldestHold)
	if first <= 0 || later <= first || none != 0 {
		t.Errorf("held for %v, then %v; waited for %v", first, later, none)
	}
	c, _ := client(m)
	w := newWaiter(context.Background(), c, Request{Key: "waited for"}, time.Now())
	m.lines.mu.Lock()
	l := &line{}
	l.waiters.PushBack(w)
	m.lines.byKey[w.waitingLine()] = l
	m.lines.mu.Unlock()
	defer func() {
		m.lines.mu.Lock()
		defer m.lines.mu.Unlock()
		delete(m.lines.byKey, w.waitingLine())
	}()
	time.Sleep(2 * time.Millisecond)
	if wait := age(telemetry.LongestWait); wait <= 0 {
		t.Errorf("waited for %v ms", wait)
	}
}

// Those come first that have been held, or have waited, for longest, and no more than are asked for; who waits has a place in line.
func TestLongest(t *testing.T) {
	m := holding(t, 3)
	for i, id := range []string{"many2", "many0", "many1"} {
		m.holds.byID[lockstore.ID{Key: id, Owner: "somebody"}].granted = m.holds.now().add(time.Duration(i-3) * time.Minute)
	}
	keys := func(all []Entry) (keys string) {
		for _, e := range all {
			keys += fmt.Sprintf("%s %d %s ", e.Key, e.Place, e.User)
		}
		return keys
	}
	for n, want := range map[int]string{0: "", 2: "many2 0  many0 0  ", 3: "many2 0  many0 0  many1 0  ", 1 << 40: "many2 0  many0 0  many1 0  "} {
		if got := keys(m.HeldLongest(n)); got != want {
			t.Errorf("%d of those held: %q, want %q", n, got, want)
		}
	}
	l := &line{}
	for i, key := range []string{"k", "k", "k"} {
		c := m.NewClient(ClientInfo{ID: clientNumbers.Add(1), User: func() string { return fmt.Sprint("user", i) }})
		w := newWaiter(context.Background(), c, Request{Key: key}, time.Now())
		w.since = time.Now().Add(time.Duration(-i-1) * time.Minute) // one that came before has its place behind, as a fair queue may want it
		l.waiters.PushBack(w)
		m.lines.byKey[w.waitingLine()] = l
	}
	if got, want := keys(m.WaitingLongest(2)), "k 3 user2 k 2 user1 "; got != want {
		t.Errorf("those who wait: %q, want %q", got, want)
	}
}

// Of ten thousand locks, while others come and go, those that stay are all listed once.
func TestListOfMany(t *testing.T) {
	m := holding(t, 10000)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			m.holds.apply(believed(m.holds, nil, lockstore.ID{Key: fmt.Sprint("busy", i), Owner: "somebody"}), left{})
		}
	}()
	for range 5 {
		seen := map[string]bool{}
		for _, e := range m.List("", "many*") {
			seen[e.Key] = true
		}
		if len(seen) != 10000 {
			t.Errorf("%d", len(seen))
		}
	}
	close(stop)
	<-ended
}

// A list takes 600 bytes a lock at most, what was made and thrown away for it included: a slice of values took 1,750.
func TestListMemory(t *testing.T) {
	const n, most = 10000, 600
	m := holding(t, n)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	all := m.List("", "")
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) / n; len(all) != n || took > most {
		t.Errorf("%d locks, %d bytes each", len(all), took)
	}
}

// holding is an engine that believes in that many holds, and does nothing.
func holding(t testing.TB, n int) *Manager {
	where, err := upstream.ParseURL("redis://127.0.0.1:1")
	target := where.Target()
	if err != nil {
		t.Fatal(err)
	}
	ctl := upstream.NewControl(target, upstream.ControlOptions{})
	t.Cleanup(ctl.Close)
	m := New(sharded.Single(ctl), ManagerOptions{Logger: testLog()})
	c := m.NewClient(ClientInfo{ID: clientNumbers.Add(1), Addr: "test"})
	for i := range n {
		believed(m.holds, c, lockstore.ID{Key: fmt.Sprint("many", i), Owner: "somebody"})
	}
	return m
}

// believed is a hold that the engine believes a connection to have, for an hour.
func believed(hs *holds, c *Client, id lockstore.ID) *record {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	rec := cmp.Or(hs.of(id), &record{id: id.Hold(), client: c})
	hs.byID[rec.id] = rec
	hs.happen(rec, acquired{lockstore.Counts{}.With(id.Kind, 1), time.Hour, time.Hour, hs.now()})
	return rec
}

// listed is what List has of an owner, or of all.
func listed(m *Manager, owner string) (all []Entry) {
	for _, e := range m.List(owner, "") {
		all = append(all, *e)
	}
	return all
}

// At the moment of a hand-off a plain lock has one owner, whoever lists it; of readers those are left out that give it back while others stay.
func TestListAtAHandOff(t *testing.T) {
	m := holding(t, 1)
	c, _ := client(m)
	owners := func(all []Entry) string {
		var names []string
		for _, e := range all {
			names = append(names, e.Key+" "+e.Owner)
		}
		slices.Sort(names)
		return strings.Join(names, ", ")
	}
	expect := func(want, ofFirst string) {
		t.Helper()
		for what, all := range map[string][]Entry{"List": listed(m, ""), "HeldLongest": m.HeldLongest(10)} {
			if got := owners(all); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		if got := owners(listed(m, "somebody")); got != ofFirst {
			t.Errorf("of the first owner: %q, want %q", got, ofFirst)
		}
	}
	releasing := func(id lockstore.ID) { m.holds.unlocking(m.holds.of(id), id.Kind, lockstore.Counts{}) }
	releasing(lockstore.ID{Key: "many0", Owner: "somebody"})
	expect("many0 somebody", "many0 somebody") // nobody has been handed it yet
	believed(m.holds, c, lockstore.ID{Key: "many0", Owner: "next"})
	expect("many0 next", "")

	for _, owner := range []string{"a", "b", "c"} {
		believed(m.holds, c, lockstore.ID{Key: "rw", Owner: owner, Kind: lockstore.Read})
	}
	releasing(lockstore.ID{Key: "rw", Owner: "b", Kind: lockstore.Read})
	expect("many0 next, rw a, rw c", "")
}

// The longest that a LOCKLIST of ten thousand holds keeps others from the engine's mutex.
func BenchmarkListOfMany(b *testing.B) {
	m := holding(b, 10000)
	longest := time.Duration(0)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
			}
			began := time.Now()
			m.holds.peek(lockstore.ID{})
			longest = max(longest, time.Since(began))
			time.Sleep(20 * time.Microsecond)
		}
	}()
	for range b.N {
		m.List("", "")
	}
	close(stop)
	<-ended
	b.ReportMetric(float64(longest.Microseconds()), "µs-longest-wait")
}

// Those that have been held for longest come first, however long it takes to list them.
func TestHeldLongestFirst(t *testing.T) {
	m := holding(t, 0)
	hs := m.holds
	var all []*record
	for i := range 5000 {
		all = append(all, believed(hs, nil, lockstore.ID{Key: fmt.Sprint("k", i), Owner: "o"}))
		all[i].granted = hs.now().add(time.Duration(i)*time.Millisecond - time.Minute)
	}
	last := moment(0)
	for i, e := range longest(len(all), hs.each) {
		at := hs.byID[lockstore.ID{Key: e.Key, Owner: "o"}].granted
		if at < last {
			t.Fatalf("%s, of %v, is number %d, behind one of %v", e.Key, at, i, last)
		}
		last = at
	}
	for _, rec := range all {
		hs.apply(rec, left{})
	}
}
