package lock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// span is the time for which one holder was sure of a lock.
type span struct {
	key, owner string
	from, to   time.Time
	token      int64
	shared     bool
}

// deadlineOf is until when the proxy is sure of a hold; zero: it is not held.
func deadlineOf(m *Manager, id lockstore.ID) time.Time {
	m.holds.mu.Lock()
	defer m.holds.mu.Unlock()
	if h := m.holds.byID[id]; h != nil && h.count > 0 {
		return h.deadline
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
			r.Owner = fmt.Sprintf("owner-%d-%d", n, round)
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
		id, _ := c.id(r.Kind, r.DB, r.Key, r.Owner)
		s.to = s.from
		stay := time.Now().Add(rand.N(60 * time.Millisecond))
		if rand.N(10) == 0 {
			stay = time.Now().Add(rand.N(2500 * time.Millisecond))
		}
		for until := deadlineOf(m, id); ; until = deadlineOf(m, id) {
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
			ms = append(ms, ns.engine(t, proxy, longest+longest/100, Options{
				Watchdog: time.Second, Poll: 200 * time.Millisecond}, quorum.Options{MaxLease: longest, NodeTimeout: 100 * time.Millisecond}))
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
