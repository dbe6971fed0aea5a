package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// step is what one of several clients does: the last of its steps waits.
type step struct {
	who  int
	do   string // "lock", "multi", "unlock"; "renew" has the watchdog take it, or not with a lease
	keys string // separated by blanks
	r    Request
}

var forever = Request{Blocks: true}

func leased(ms int64) Request     { return Request{Lease: ms} }
func of(kind Kind) Request        { return Request{Kind: kind} }
func foreverOf(kind Kind) Request { return Request{Kind: kind, Blocks: true} }
func named(owner string) Request  { return Request{Owner: owner, Lease: 600_000} }
func foreverAs(o string) Request  { return Request{Owner: o, Blocks: true, Lease: 600_000} }
func foreverFor(ms int64) Request { return Request{Lease: ms, Blocks: true} }
func within(ms int64) Request     { return Request{Blocks: true, Block: ms} }

func (st step) run(ctx context.Context, c *Client) error {
	r := st.r
	r.Key = st.keys
	var err error
	switch st.do {
	case "lock":
		_, err = c.Lock(ctx, r)
	case "multi":
		_, err = c.MultiLock(ctx, strings.Fields(st.keys), r)
	case "unlock":
		_, err = c.Unlock(ctx, UnlockRequest{Key: r.Key, Owner: r.Owner})
	case "renew":
		err = c.Renew(ctx, RenewRequest{Key: r.Key, Lease: r.Lease})
	default:
		err = errors.New("no such step")
	}
	return err
}

// circles are steps of which those that do not come back wait; the last one is told DEADLOCK, or waits as well.
var circles = []struct {
	name  string
	steps []step
	named string // the keys that the error names, in its order; "" = no DEADLOCK
}{
	{"two", []step{{0, "lock", "a", Request{}}, {1, "lock", "b", Request{}}, {0, "lock", "b", forever}, {1, "lock", "a", forever}}, "a b"},
	{"three", []step{
		{0, "lock", "a", Request{}}, {1, "lock", "b", Request{}}, {2, "lock", "c", Request{}},
		{0, "lock", "b", forever}, {1, "lock", "c", forever}, {2, "lock", "a", forever},
	}, "a b c"},
	{"in fair queues", []step{
		{0, "lock", "a", Request{Fair: true}}, {1, "lock", "b", Request{}}, {0, "lock", "b", Request{Fair: true, Blocks: true}}, {1, "lock", "a", Request{Fair: true, Blocks: true}},
	}, "a b"},
	{"a lease asked for by who waits", []step{
		{0, "lock", "a", Request{}}, {1, "lock", "b", Request{}}, {0, "lock", "b", foreverFor(500)}, {1, "lock", "a", foreverFor(500)},
	}, "a b"},
	{"multi closes it", []step{{0, "lock", "b", Request{}}, {1, "lock", "c", Request{}}, {0, "lock", "c", forever}, {1, "multi", "a b", forever}}, "b c"},
	{"multi is in it", []step{{0, "lock", "b", Request{}}, {1, "multi", "a b", foreverFor(60000)}, {0, "lock", "a", forever}}, "a b"},
	{"renewed for good", []step{
		{0, "lock", "a", leased(60000)}, {1, "lock", "b", Request{}}, {0, "renew", "a", Request{}}, {0, "lock", "b", forever}, {1, "lock", "a", forever},
	}, "a b"},
	{"entered again for good", []step{
		{0, "lock", "a", leased(60000)}, {0, "lock", "a", Request{}}, {1, "lock", "b", Request{}}, {0, "lock", "b", forever}, {1, "lock", "a", forever},
	}, "a b"},
	{"one of two readers", []step{
		{0, "lock", "a", of(Read)}, {2, "lock", "a", of(Read)}, {1, "lock", "b", Request{}}, {0, "lock", "b", forever}, {1, "lock", "a", foreverOf(Write)},
	}, "a b"},
	{"a reader waits for a writer", []step{
		{0, "lock", "a", of(Write)}, {1, "lock", "b", of(Read)}, {0, "lock", "b", foreverOf(Write)}, {1, "lock", "a", foreverOf(Read)},
	}, "a b"},
	{"a reader in line behind a writer", []step{
		{0, "lock", "a", of(Read)}, {1, "lock", "b", Request{}}, {2, "lock", "a", foreverOf(Write)}, {0, "lock", "b", forever}, {1, "lock", "a", foreverOf(Read)},
	}, "a b"},
	{"granted meanwhile", []step{ // the lock that the third waits for changes hands before the circle closes
		{2, "lock", "a", leased(300)}, {1, "lock", "b", Request{}}, {0, "lock", "a", within(20000)}, {0, "lock", "b", forever}, {1, "lock", "a", forever},
	}, "a b"},

	{"no circle", []step{{0, "lock", "a", Request{}}, {1, "lock", "b", Request{}}, {2, "lock", "b", forever}, {1, "lock", "a", forever}}, ""},
	{"the first waits for a time", []step{{0, "lock", "a", Request{}}, {1, "lock", "b", Request{}}, {0, "lock", "b", within(60000)}, {1, "lock", "a", forever}}, ""},
	{"the last waits for a time", []step{{0, "lock", "a", Request{}}, {1, "lock", "b", Request{}}, {0, "lock", "b", forever}, {1, "lock", "a", within(60000)}}, ""},
	{"one has a lease", []step{{0, "lock", "a", leased(60000)}, {1, "lock", "b", Request{}}, {0, "lock", "b", forever}, {1, "lock", "a", forever}}, ""},
	{"renewed for a time", []step{
		{0, "lock", "a", Request{}}, {0, "renew", "a", leased(60000)}, {1, "lock", "b", Request{}}, {0, "lock", "b", forever}, {1, "lock", "a", forever},
	}, ""},
	{"an owner with a name holds", []step{{0, "lock", "a", named("o")}, {1, "lock", "b", Request{}}, {0, "lock", "b", forever}, {1, "lock", "a", forever}}, ""},
	{"an owner with a name waits first", []step{{0, "lock", "a", Request{}}, {1, "lock", "b", Request{}}, {0, "lock", "b", foreverAs("o")}, {1, "lock", "a", forever}}, ""},
	{"an owner with a name waits last", []step{{0, "lock", "a", Request{}}, {1, "lock", "b", Request{}}, {0, "lock", "b", forever}, {1, "lock", "a", foreverAs("o")}}, ""},
	{"through another proxy", []step{{0, "lock", "a", Request{}}, {3, "lock", "b", Request{}}, {0, "lock", "b", forever}, {3, "lock", "a", forever}}, ""},
	{"in another database", []step{
		{0, "lock", "a", Request{DB: 1}}, {1, "lock", "b", Request{}}, {2, "lock", "a", Request{}}, {0, "lock", "b", forever}, {1, "lock", "a", forever},
	}, ""},
	{"given back", []step{
		{0, "lock", "a", Request{}}, {1, "lock", "b", Request{}}, {1, "unlock", "b", Request{}}, {2, "lock", "b", Request{}}, {0, "lock", "b", forever}, {1, "lock", "a", forever},
	}, ""},
	{"a reader behind a writer that waits for a time", []step{ // it will share with the one that reads
		{0, "lock", "a", of(Read)}, {1, "lock", "b", Request{}}, {2, "lock", "a", Request{Kind: Write, Blocks: true, Block: 60000}},
		{0, "lock", "b", forever}, {1, "lock", "a", foreverOf(Read)},
	}, ""},
	{"two multis", []step{{2, "lock", "c", Request{}}, {0, "multi", "a c", forever}, {1, "multi", "c a", forever}}, ""},
}

func TestDeadlock(t *testing.T) {
	for _, c := range circles {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				s := w.NewNode(bubbleAddr)
				m, m2 := bubbleEngine(t, w, s, "one", ManagerOptions{}), bubbleEngine(t, w, s, "two", ManagerOptions{})
				ctx, cancel := context.WithCancel(context.Background())
				var waits []chan error
				var clients []*Client
				for i := range 4 {
					c, _ := client([]*Manager{m, m, m, m2}[i])
					clients = append(clients, c)
				}
				defer func() {
					cancel()
					for _, wait := range waits {
						<-wait
					}
				}()
				for i, st := range c.steps {
					if !st.r.Blocks || st.r.Block == 20000 {
						if err := st.run(ctx, clients[st.who]); err != nil {
							t.Fatal(st, err)
						}
						continue
					}
					done := make(chan error, 1)
					before := m.Stats().Waiting + m2.Stats().Waiting
					began := time.Now()
					go func() { done <- st.run(ctx, clients[st.who]) }()
					if i < len(c.steps)-1 || c.named == "" {
						waits = append(waits, done)
						eventually(t, 5*time.Second, "waits", func() bool { return m.Stats().Waiting+m2.Stats().Waiting > before })
						continue
					}
					err := <-done
					wantCode(t, err, "DEADLOCK")
					t.Log(err, time.Since(began))
					if got := quoted(err.Error()); got != c.named {
						t.Errorf("it names %q, want %q", got, c.named)
					}
					if n := clients[st.who].Held(); n != 1 {
						t.Errorf("%d holds left", n)
					}
				}
				if c.named == "" { // nobody is told anything
					time.Sleep(10 * time.Second)
				}
				for _, wait := range waits {
					select {
					case err := <-wait:
						t.Errorf("a wait ended: %v", err)
						wait <- err
					default:
					}
				}
			})
		})
	}
}

// quoted is what stands in quotes.
func quoted(text string) string {
	var out []string
	for i, part := range strings.Split(text, "'") {
		if i%2 == 1 {
			out = append(out, part)
		}
	}
	return strings.Join(out, " ")
}

// Of two waits that close a circle at the same time one is told, and the other gets the lock when that one gives up.
func TestDeadlockTellsOne(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		for range 50 {
			clients := make([]*Client, 3)
			ended := make(chan int, 3)
			told := make(chan error, 3)
			for i := range clients {
				clients[i], _ = client(m)
				mustLock(t, clients[i], Request{Key: fmt.Sprint(i)})
			}
			for i, c := range clients {
				go func() {
					_, err := c.Lock(context.Background(), Request{Key: fmt.Sprint((i + 1) % 3), Blocks: true})
					if err != nil {
						told <- err
					}
					c.Close(Gone)
					ended <- i
				}()
			}
			for range clients {
				select {
				case <-ended:
				case <-time.After(20 * time.Second):
					t.Fatal("stuck")
				}
			}
			if len(told) != 1 {
				t.Fatalf("%d were told", len(told))
			}
			wantCode(t, <-told, "DEADLOCK")
			eventually(t, 5*time.Second, "free", func() bool { return m.Stats().Held == 0 })
		}
	})
}

// Two that find the same circle before either has left its line are not both told.
func TestDeadlockFoundTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		a, _ := client(m)
		b, _ := client(m)
		mustLock(t, a, Request{Key: "x"})
		mustLock(t, b, Request{Key: "y"})
		m.lines.mu.Lock()
		a.waits = &waiter{c: a, r: Request{Key: "y", Blocks: true}, id: lockstore.ID{Key: "y", Owner: a.Owner()}}
		b.waits = &waiter{c: b, r: Request{Key: "x", Blocks: true}, id: lockstore.ID{Key: "x", Owner: b.Owner()}}
		first, second := a.waits, b.waits
		m.lines.mu.Unlock()
		wantCode(t, m.deadlock(context.Background(), first), "DEADLOCK")
		if err := m.deadlock(context.Background(), second); err != nil {
			t.Fatal(err)
		}
	})
}

// Under max-hold every hold ends. A hold that was freed behind our back makes no circle.
func TestDeadlockOnlyWhenCertain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{MaxHold: time.Minute})
		ctx, cancel := context.WithCancel(context.Background())
		a, _ := client(m)
		b, _ := client(m)
		mustLock(t, a, Request{Key: "a"})
		mustLock(t, b, Request{Key: "b"})
		done := make(chan error, 2)
		go func() { _, err := a.Lock(ctx, Request{Key: "b", Blocks: true}); done <- err }()
		go func() { _, err := b.Lock(ctx, Request{Key: "a", Blocks: true}); done <- err }()
		time.Sleep(300 * time.Millisecond)
		cancel()
		for range 2 {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}

		m = bubbleEngine(t, w, s, "two", ManagerOptions{Poll: 100 * time.Millisecond})
		a, _ = client(m)
		b, _ = client(m)
		mustLock(t, a, Request{Key: "x"})
		mustLock(t, b, Request{Key: "y"})
		go func() { _, err := a.Lock(context.Background(), Request{Key: "y", Blocks: true}); done <- err }()
		eventually(t, 5*time.Second, "waits", func() bool { return m.Stats().Waiting == 1 })
		s.Do(t, "DEL", "x")
		s.Do(t, "HSET", "x", "stranger", 1)
		s.Do(t, "PEXPIRE", "x", 500)
		if _, err := b.Lock(context.Background(), Request{Key: "x", Blocks: true}); err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, b, UnlockRequest{Key: "y"}, true)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// A long circle names some of its keys, in one line.
func TestDeadlockNamesSome(t *testing.T) {
	circle := make([]lockstore.ID, 30)
	for i := range circle {
		circle[i].Key = fmt.Sprintf("k\r\n%d", i)
	}
	text := neverEnds(circle).Error()
	if got := quoted(text); got != "k??0 k??1 k??2 k??3 k??4 k??5 k??6 k??29" || !strings.Contains(text, "waits for 22 more,") || strings.ContainsAny(text, "\r\n") {
		t.Fatal(got, text)
	}
}
