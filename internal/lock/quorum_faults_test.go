package lock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// hasty are a node's times where a test counts in hundreds of milliseconds.
var hasty = quorum.StoreOptions{NodeTimeout: 200 * time.Millisecond}

// jobs are the engines of some proxies with a client each. The nodes' clocks are known, and the nodes know the scripts of plain locks.
func (ns *simulated) jobs(t *testing.T, proxies ...string) (engines map[string]*Manager, clients map[string]*Client, told map[string]*losses) {
	t.Helper()
	engines, clients, told = map[string]*Manager{}, map[string]*Client{}, map[string]*losses{}
	for _, name := range proxies {
		engines[name] = ns.engine(t, name, 0, ManagerOptions{}, hasty)
		clients[name], told[name] = client(engines[name])
	}
	time.Sleep(2300 * time.Millisecond) // not beside a sample of the clocks
	for _, name := range proxies {
		mustLock(t, clients[name], Request{Key: "warm", Owner: "job", Lease: 30_000})
		mustUnlock(t, clients[name], UnlockRequest{Key: "warm", Owner: "job"}, true)
		mustUnlock(t, clients[name], UnlockRequest{Key: "warm", Force: true}, false)
	}
	return engines, clients, told
}

// away cuts a proxy off from the nodes with these numbers.
func (ns *simulated) away(proxy string, nodes ...int) {
	for _, i := range nodes {
		ns.link(proxy, i).Cut()
	}
}

// A LOCK's vote may also come after the UNLOCK to a node that had the lock by another LOCK of that owner.
func TestQuorumUnlockOvertakesAVoteWhereItWasHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		_, c, _ := ns.jobs(t, "first", "second")
		ns.away("first", 0)
		time.Sleep(2 * time.Second)
		mustLock(t, c["first"], Request{Key: "k", Owner: "job", Lease: 30_000}) // on 1 and 2
		time.Sleep(time.Second)
		ns.link("second", 2).Delay(190*time.Millisecond, 0)
		mustLock(t, c["second"], Request{Key: "other"})
		time.Sleep(250 * time.Millisecond) // 2 has not answered in time
		mustLock(t, c["second"], Request{Key: "k", Owner: "job", Lease: 30_000})
		mustUnlock(t, c["first"], UnlockRequest{Key: "k", Owner: "job"}, true)
		ns.link("second", 2).Heal()
		time.Sleep(2 * time.Minute)
		if n := ns.holding(t, "k"); n > 0 {
			t.Errorf("%d nodes have it for ever", n)
		}
	})
}

// A node whose clock has just been set back, by less than counts as set, keeps what its owner has taken since the UNLOCK that comes late.
func TestQuorumLateUnlockWhereTheClockWentBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		_, c, _ := ns.jobs(t, "unlocks", "locks", "third")
		mustLock(t, c["locks"], Request{Key: "k", Owner: "job", Lease: 30_000})
		time.Sleep(time.Second)
		ns.link("unlocks", 0).Delay(300*time.Millisecond, 0)
		mustLock(t, c["unlocks"], Request{Key: "other"})
		time.Sleep(250 * time.Millisecond) // 0 has not answered in time
		ns.link("unlocks", 0).Delay(190*time.Millisecond, 0)
		ns.servers[0].Jump(-200 * time.Millisecond)
		mustUnlock(t, c["unlocks"], UnlockRequest{Key: "k", Owner: "job"}, true)
		ns.away("locks", 2)
		mustLock(t, c["locks"], Request{Key: "k", Owner: "job", Lease: 30_000})
		time.Sleep(time.Second)
		if _, err := c["third"].Lock(context.Background(), Request{Key: "k"}); err == nil {
			t.Errorf("two have it; %d of the first one's two nodes kept it", ns.holding(t, "k", 2))
		}
	})
}

// Who waits for a lock and gets it when UNLOCK FORCE has come to the first nodes does not lose it when that comes to the others.
func TestQuorumForceLeavesTheNextHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		engines, c, told := ns.jobs(t, "forces", "holds", "waits", "fourth")
		for _, kinds := range [][2]Kind{{Plain, Plain}, {Write, Write}, {Write, Read}, {Read, Write}} {
			key := kinds[0].String() + kinds[1].String()
			ns.link("holds", 2).Delay(300*time.Millisecond, 0)
			mustLock(t, c["holds"], Request{Key: key, Kind: kinds[0]}) // on 0 and 1
			time.Sleep(2 * time.Second)
			ns.away("waits", 0)
			got := make(chan error, 1)
			go func() {
				_, err := c["waits"].Lock(context.Background(), Request{Key: key, Kind: kinds[1], Blocks: true})
				got <- err
			}()
			time.Sleep(time.Second)
			ns.link("forces", 2).Delay(60*time.Millisecond, 0)
			mustUnlock(t, c["forces"], UnlockRequest{Key: key, Side: kinds[0], Force: true}, true)
			if err := <-got; err != nil {
				t.Fatal(err)
			}
			if _, err := c["fourth"].Lock(context.Background(), Request{Key: key, Kind: Write}); err == nil && kinds[0] != Plain {
				t.Errorf("%s: two have it: %d here, told %q", key, engines["waits"].Stats().Held, told["waits"].reasons())
			}
			if _, err := c["fourth"].Lock(context.Background(), Request{Key: key}); err == nil && kinds[0] == Plain {
				t.Errorf("%s: two have it: %d here, told %q", key, engines["waits"].Stats().Held, told["waits"].reasons())
			}
			for _, proxy := range []string{"holds", "waits", "forces"} {
				for i := range ns.servers {
					ns.link(proxy, i).Heal()
				}
			}
			time.Sleep(2 * time.Second)
		}
	})
}

// far has all messages of a proxy be on their way for as long as between machines 30 to 50 ms apart.
func (ns *simulated) far(proxy string) {
	for i := range ns.servers {
		ns.link(proxy, i).Delay(time.Duration(15+5*i)*time.Millisecond, 0)
	}
}

// An UNLOCK … FORCE whose time is over is not done any more.
func TestQuorumForceIsNotDoneLater(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		const timeout = 500 * time.Millisecond
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 0, ManagerOptions{}, quorum.StoreOptions{NodeTimeout: timeout})
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k", Lease: 60000})
		mustLock(t, a, Request{Key: "rw", Kind: Write, Lease: 60000})
		heldOn(t, ns, "k", 3, "on all")
		heldOn(t, ns, "rw", 3, "on all")
		for i := range ns.servers {
			ns.link("one", i).Delay(timeout+200*time.Millisecond, 0)
		}
		for key, side := range map[string]Kind{"k": Plain, "rw": Write} {
			if _, err := a.Unlock(context.Background(), UnlockRequest{Key: key, Side: side, Force: true}); err == nil {
				t.Fatal("answered without the nodes")
			}
		}
		time.Sleep(10 * time.Second)
		heldOn(t, ns, "k", 3, "not freed")
		heldOn(t, ns, "rw", 3, "not freed")
	})
}

// Nodes that have just started are said to be too young, and for how long; LOCK with BLOCK waits for them.
func TestQuorumWaitsForYoungNodes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 3*time.Second, ManagerOptions{})
		a, _ := client(m)
		b, _ := client(m)
		got := locking(b, Request{Key: "multi", Blocks: true, Block: 30000, Owner: "job", Lease: 30_000})
		_, err := a.Lock(context.Background(), Request{Key: "k"})
		if wantCode(t, err, "NOQUORUM"); !strings.Contains(err.Error(), "0 of 3 nodes count, 2 are needed: the lock was not taken; 3 were started, or their clocks set, "+
			"too recently, and enough nodes count in ") || strings.Contains(err.Error(), "unavailable") {
			t.Error(err)
		}
		began := time.Now()
		_, err = a.Lock(context.Background(), Request{Key: "k", Blocks: true, Block: 50})
		if wantCode(t, err, "NOQUORUM"); time.Since(began) < 50*time.Millisecond {
			t.Error("did not wait")
		}
		if _, err = a.Lock(context.Background(), Request{Key: "k", Blocks: true, Block: 30000}); err != nil {
			t.Fatal(err)
		}
		granted(t, got, "a named owner")
	})
}

// LOCKINFO shows the token that the holder was given, and none while it cannot be known.
func TestQuorumInfoShowsTheHoldersToken(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 0, ManagerOptions{}, quorum.StoreOptions{NodeTimeout: 500 * time.Millisecond})
		c, _ := client(m)
		ns.servers[2].Do(t, "SET", lockstore.TokenKey("k"), 1<<51) // as a LOCK that failed may leave it on one node
		for i := range 10 {
			key := []string{"k", "l", "m"}[i%3]
			g := mustLock(t, c, Request{Key: key, Fence: true, Lease: 30_000, Owner: fmt.Sprint("o", i)})
			in, err := m.Info(context.Background(), 0, key)
			if err != nil || !in.Fenced || in.Token != g.Token {
				t.Errorf("the holder was given %d, LOCKINFO shows %d, %v, %v", g.Token, in.Token, in.Fenced, err)
			}
			mustUnlock(t, c, UnlockRequest{Key: key, Owner: fmt.Sprint("o", i)}, true)
		}
		ns.servers[0].Do(t, "SET", lockstore.TokenKey("n"), 7)
		ns.link("one", 2).Cut()
		if in, err := m.Info(context.Background(), 0, "n"); err != nil || in.Fenced {
			t.Errorf("shown %d, which no majority has: %v", in.Token, err)
		}
	})
}

// An UNLOCK that was answered NOQUORUM, and was done on the nodes all the same, is no loss, also if the watchdog finds out before it is said
// again.
func TestQuorumUnlockDoneUnheard(t *testing.T) {
	for _, kind := range lockstore.Kinds[:3] {
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, 3)
			a, lost := client(ns.engine(t, "one", 0, ManagerOptions{}, hasty))
			mustLock(t, a, Request{Key: "k", Kind: kind})
			for i := 1; i < 3; i++ {
				ns.link("one", i).Swallow(world.Replies)
			}
			_, err := a.Unlock(context.Background(), UnlockRequest{Key: "k", Side: kind})
			wantCode(t, err, "NOQUORUM")
			for i := 1; i < 3; i++ {
				ns.link("one", i).Cut()
				ns.link("one", i).Heal()
			}
			time.Sleep(5 * time.Second)
			if has := ns.holding(t, "k"); has != 0 || lost.reasons() != "" {
				t.Errorf("%v: %d nodes have it, told %q", kind, has, lost.reasons())
			}
			if free, err := a.Unlock(context.Background(), UnlockRequest{Key: "k", Side: kind}); !free && !isCode(err, "NOTHELD") {
				t.Error(kind, free, err)
			}
		})
	}
}

// span is the time for which one holder was sure of a lock.
type span struct {
	key, owner string
	from, to   time.Time
	token      int64
	shared     bool
}

// dueOf is when a connection's hold ends unless something happens before; zero: it is not held.
func dueOf(m *Manager, id lockstore.ID) time.Time {
	m.holds.mu.Lock()
	defer m.holds.mu.Unlock()
	if h := m.holds.byID[id.Hold()]; h != nil && h.live() {
		return m.holds.time(h.due(m.holds.terms))
	}
	return time.Time{}
}

// worker takes and gives back locks until the end, and notes for how long it was sure of each.
func worker(m *Manager, n int, end time.Time, note func(span)) {
	c, _ := client(m)
	defer func() { c.Close(Gone) }()
	for round := 0; time.Now().Before(end); round++ {
		r := Request{Key: fmt.Sprint("key", rand.N(3)), Blocks: true, Block: 400, Fence: true, Self: true}
		switch rand.N(5) {
		case 0:
			r.Lease = 300 + rand.Int64N(600)
		case 1:
			r.Owner, r.Lease = fmt.Sprintf("owner-%d-%d", n, round), 900
		case 2:
			r.Blocks = false
		case 3:
			r.Key, r.Kind, r.Fence = "rw", Read, false
			if rand.N(3) == 0 {
				r.Kind = Write
			}
		}
		g, err := c.Lock(context.Background(), r)
		if err != nil {
			time.Sleep(rand.N(20 * time.Millisecond))
			continue
		}
		s := span{key: r.Key, owner: fmt.Sprint(n, "-", round), from: time.Now(), token: g.Token, shared: r.Kind == Read}
		id := c.id(r.Kind, r.DB, r.Key, r.Owner)
		s.to = s.from
		stay := time.Now().Add(rand.N(60 * time.Millisecond))
		if rand.N(10) == 0 {
			stay = time.Now().Add(rand.N(2500 * time.Millisecond))
		}
		leased := g.Until()
		for until := dueOf(m, id); ; until = dueOf(m, id) {
			if r.Owner != "" {
				until = leased
			}
			now := time.Now()
			if until.IsZero() {
				break
			}
			if !now.Before(until) || !now.Before(stay) {
				s.to = now
				if until.Before(now) {
					s.to = until
				}
				break
			}
			s.to = now
			time.Sleep(5 * time.Millisecond)
		}
		note(s)
		switch rand.N(8) {
		case 0:
			c.Close(Gone)
			c, _ = client(m)
		default:
			_, _ = c.Unlock(context.Background(), UnlockRequest{Key: r.Key, Owner: r.Owner, Side: r.Kind})
		}
	}
}

// hurt makes one fault for a while and mends it.
func hurt(ns *simulated, proxies []string) {
	i := rand.N(len(ns.servers))
	pause := 50*time.Millisecond + rand.N(900*time.Millisecond)
	link := ns.link(proxies[rand.N(len(proxies))], i)
	switch rand.N(5) {
	case 0:
		ns.servers[i].Stop()
		time.Sleep(pause)
		ns.servers[i].Cont()
	case 1:
		ns.servers[i].Restart() // empty
		time.Sleep(pause / 2)
	case 2:
		link.Cut()
		time.Sleep(pause)
		link.Heal()
	case 3:
		for _, proxy := range proxies {
			ns.link(proxy, i).Cut()
		}
		time.Sleep(pause)
		for _, proxy := range proxies {
			ns.link(proxy, i).Heal()
		}
	case 4:
		link.Delay(rand.N(150*time.Millisecond), time.Millisecond)
		time.Sleep(pause)
		link.Heal()
	}
}

// overlaps are the pairs of holders that were sure of one lock at one time, and tokens that did not rise.
func overlaps(spans []span) (out []string) {
	byKey := map[string][]span{}
	for _, s := range spans {
		byKey[s.key] = append(byKey[s.key], s)
	}
	for key, all := range byKey {
		sort.Slice(all, func(i, j int) bool { return all[i].from.Before(all[j].from) })
		for i, a := range all {
			for _, b := range all[i+1:] {
				if b.from.Before(a.to) && !(a.shared && b.shared) {
					out = append(out, fmt.Sprintf("%s: %s had it for %v more when %s got it", key, a.owner, a.to.Sub(b.from), b.owner))
				}
				if a.token > 0 && b.token > 0 && b.token <= a.token {
					out = append(out, fmt.Sprintf("%s: token %d after %d", key, b.token, a.token))
				}
			}
		}
	}
	return out
}

// Random faults on nodes and links never give two holders, nor a token twice; and all is well again afterwards.
func TestQuorumUnderRandomFaults(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		length := 8 * time.Second
		if os.Getenv("TESTS_LONG") == "1" {
			length = 10 * time.Minute
		}
		const longest = 2 * time.Second
		ns := bubbleNodes(w, 5)
		time.Sleep(longest + 2*time.Second) // the nodes grow old enough
		proxies := []string{"one", "two"}
		var ms []*Manager
		for _, proxy := range proxies {
			ms = append(ms, ns.engine(t, proxy, longest+longest/100, ManagerOptions{
				Watchdog: time.Second, Poll: 200 * time.Millisecond}, quorum.StoreOptions{MaxLease: longest, NodeTimeout: 100 * time.Millisecond}))
		}
		var mu sync.Mutex
		var spans []span
		note := func(s span) {
			mu.Lock()
			defer mu.Unlock()
			spans = append(spans, s)
		}
		end := time.Now().Add(length)
		var all sync.WaitGroup
		for n := range 10 {
			all.Go(func() { worker(ms[n%2], n, end, note) })
		}
		for time.Now().Before(end) {
			hurt(ns, proxies)
			time.Sleep(rand.N(300 * time.Millisecond))
		}
		all.Wait()
		for _, o := range overlaps(spans) {
			t.Error(o)
		}
		t.Logf("%d grants in %v", len(spans), length)
		if len(spans) < 20 {
			t.Error("too few grants to say anything")
		}
		for i, m := range ms {
			for _, key := range []string{"key0", "key1", "key2", "rw"} {
				c, _ := client(m)
				kind := Plain
				if key == "rw" {
					kind = Write
				}
				eventually(t, 20*time.Second, fmt.Sprint(key, " can be had again through proxy ", i), func() bool {
					_, err := c.Lock(context.Background(), Request{Key: key, Kind: kind})
					return err == nil
				})
				c.Close(Gone)
			}
		}
		eventually(t, 20*time.Second, "nothing is left", func() bool {
			n := int64(0)
			for _, key := range []string{"key0", "key1", "key2", "rw"} {
				n += ns.holding(t, key)
			}
			return n == 0
		})
	})
}

// The oracle sees what it is for.
func TestOverlapsAreSeen(t *testing.T) {
	now := time.Now()
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }
	if got := overlaps([]span{{key: "k", from: at(0), to: at(10), token: 1}, {key: "k", from: at(10), to: at(20), token: 2}, {key: "l", from: at(5), to: at(7), token: 1}}); len(got) != 0 {
		t.Error(got)
	}
	if got := overlaps([]span{{key: "k", from: at(0), to: at(10), token: 2}, {key: "k", from: at(9), to: at(20), token: 2}}); len(got) != 2 {
		t.Error(got)
	}
	if got := overlaps([]span{{key: "k", from: at(0), to: at(10), shared: true}, {key: "k", from: at(9), to: at(20), shared: true}, {key: "k", from: at(15), to: at(25)}}); len(got) != 1 {
		t.Error(got)
	}
}
