package lock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/sharded"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// TestToldWhileEverythingHangs: whatever is under way and waits for Redis, every lock is told lost before Redis frees it, and stays
// lost when Redis turns out to have done what was asked in time: no verb makes it live again, and it is given back.
func TestToldWhileEverythingHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		const lease = 3 * time.Second
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Watchdog: lease})
		c, lost := client(m)
		others := map[string]*Client{}
		for _, verb := range []string{"lock", "renew", "unlock", "let"} {
			others[verb] = m.NewClient(ClientInfo{ID: clientNumbers.Add(1), Addr: "test", Push: lost.push})
			mustLock(t, others[verb], Request{Key: verb, Self: true})
		}
		for i := range 200 {
			mustLock(t, c, Request{Key: fmt.Sprint("held", i)})
		}
		began := time.Now()
		s.Stop()
		defer s.Cont()
		said := map[string]chan error{}
		say := func(verb string, do func(*Client) error) {
			answer := make(chan error, 1)
			said[verb] = answer
			go func() { answer <- do(others[verb]) }()
		}
		// So late that Redis can still do it when it is told lost.
		time.Sleep(time.Until(began.Add(lease - reserve(lease) - 400*time.Millisecond)))
		say("lock", func(c *Client) error {
			_, err := c.Lock(context.Background(), Request{Key: "lock", Self: true})
			return err
		})
		say("renew", func(c *Client) error {
			return c.Renew(context.Background(), RenewRequest{Key: "renew", Lease: 60000})
		})
		say("unlock", func(c *Client) error {
			_, err := c.Unlock(context.Background(), UnlockRequest{Key: "unlock"})
			return err
		})
		eventually(t, 15*time.Second, "told", func() bool { return strings.Count(lost.reasons(), ":unrenewed ") == 204 })
		s.Cont()
		for verb, err := range said {
			switch err := <-err; {
			case verb == "lock" && err == nil: // anew, when Redis was there
				mustUnlock(t, others[verb], UnlockRequest{Key: verb}, true)
			case !isCode(err, "LOCKLOST"):
				t.Errorf("the %s that was under way: %v", verb, err)
			}
		}
		for verb := range others {
			eventually(t, 15*time.Second, verb+" is free", func() bool { return pttl(t, s, verb) < 0 })
		}
		if got := m.Stats().Held; got != 0 {
			t.Errorf("%d locks are held", got)
		}
	})
}

// TestSlowRedisLosesNoLock: a Redis that takes longer than a script's not-after to come to it keeps what is renewed in time.
func TestSlowRedisLosesNoLock(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Watchdog: 4 * time.Second})
		far := w.Proxy("one").Link(s.Addr())
		c, lost := client(m)
		for i := range 20 {
			mustLock(t, c, Request{Key: fmt.Sprint("held", i)})
		}
		eventually(t, 15*time.Second, "renewed once", func() bool { return m.Stats().Renewed >= 20 })
		far.Delay(600*time.Millisecond, 0) // and our estimate of its clock is behind by as much
		time.Sleep(5 * time.Second)
		far.Heal()
		if lost.reasons() != "" || m.Stats().Held != 20 {
			t.Errorf("lost: %s", lost.reasons())
		}
	})
}

// TestToldAheadOfTheEnd: a loss is told a tenth of the lease before its end, but at most 2 s.
func TestToldAheadOfTheEnd(t *testing.T) {
	for lease, ahead := range map[time.Duration]time.Duration{
		5 * time.Second: 500 * time.Millisecond, 30 * time.Second: 2 * time.Second, time.Minute: 2 * time.Second,
	} {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m := bubbleEngine(t, w, s, "one", ManagerOptions{Watchdog: lease})
			c, lost := client(m)
			taken := time.Now()
			mustLock(t, c, Request{Key: "k"})
			s.Stop()
			defer s.Cont()
			eventually(t, lease, "told", func() bool { return lost.reasons() == "k:unrenewed " })
			if got := lease - time.Since(taken); got < ahead-50*time.Millisecond || got > ahead+50*time.Millisecond {
				t.Errorf("of a lease of %v: told %v before its end, not %v", lease, got, ahead)
			}
		})
	}
}

// TestReplicasTakeNobodysPlace: what was taken with REPLICAS is renewed while the replica is away, and nobody waits for it.
func TestReplicasTakeNobodysPlace(t *testing.T) {
	t.Parallel()
	const lease = 10 * time.Second // a renewal may be some seconds late
	s := testredis.Start(t)
	replica := testredis.Start(t, "--replicaof", "127.0.0.1", strconv.Itoa(s.Port()))
	eventually(t, 30*time.Second, "in step", func() bool {
		info, _ := s.Do(t, "INFO", "replication").([]byte)
		return strings.Contains(string(info), "state=online")
	})
	m := engine(t, s.URL(), ManagerOptions{Watchdog: lease})
	c, lost := client(m)
	for db := range 4 {
		for _, kind := range lockstore.Kinds {
			lockCopied(t, c, Request{DB: db, Key: fmt.Sprint("copied-", uint8(kind), "-", db), Kind: kind, Replicas: 1})
		}
	}
	replica.Stop()
	defer replica.Cont()
	mustLock(t, c, Request{Key: "plain"})
	time.Sleep(lease * 3 / 2)
	if got := lost.reasons(); got != "" || c.Held() != 4*len(lockstore.Kinds)+1 {
		t.Errorf("%d are held, lost: %s", c.Held(), got)
	}
}

// TestChunksByDeadline: a chunk takes 500 holds of one kind, and the earliest deadline goes first.
func TestChunksByDeadline(t *testing.T) {
	m := New(sharded.Single(upstream.NewControl(upstream.Target{}, upstream.ControlOptions{})), ManagerOptions{})
	now := m.holds.now()
	c := &Client{m: m, owner: "o"}
	m.watchdog.mu.Lock()
	defer m.watchdog.mu.Unlock()
	m.holds.mu.Lock()
	var first *record
	for i := range 1200 {
		rec := &record{client: c, id: lockstore.ID{Key: fmt.Sprint(i), Owner: "o", Kind: Kind(i % 2)}.Hold()}
		rec.hold = hold{counts: lockstore.Counts{Writes: 1}, is: watched, lease: time.Minute, sure: now.add(time.Duration(2000-i) * time.Second), visit: now}
		m.watchdog.enqueue(rec)
		if first == nil {
			first = rec
		}
	}
	ln := m.watchdog.laneOf(m.store.Location(first.id.Key))
	m.holds.mu.Unlock()
	var sizes []int
	var last moment
	for ln.queue.Len() > 0 {
		b := ln.queue.First()
		ln.queue.Drop(b)
		if b.deadline < last {
			t.Errorf("a chunk for %v comes after one for %v", b.deadline.sub(now), last.sub(now))
		}
		last = b.deadline
		m.holds.take(b)
		sizes = append(sizes, len(b.holds))
	}
	if fmt.Sprint(sizes) != "[100 100 500 500]" {
		t.Errorf("chunks of %v", sizes)
	}
}

// TestRenewalAfterTheLossIsTold: a renewal that Redis has done, but whose answer came when the loss was told, is taken back when the
// lease is over by which the loss was told, and not before.
func TestRenewalAfterTheLossIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{Watchdog: 20 * time.Second})
		link := w.Proxy("one").Link(s.Addr())
		c, lost := client(m)
		mustLock(t, c, Request{Key: "k"})
		time.Sleep(13 * time.Second) // it is renewed next in a moment
		link.Swallow(world.Replies)
		eventually(t, 20*time.Second, "told while it is renewed", func() bool { return lost.reasons() == "k:unrenewed " })
		if pttl(t, s, "k") <= 2000 {
			t.Fatal("it was not renewed")
		}
		link.Cut()
		link.Heal()
		eventually(t, 15*time.Second, "it is free", func() bool { return pttl(t, s, "k") < 0 })
		_, err := c.Unlock(context.Background(), UnlockRequest{Key: "k"})
		wantCode(t, err, "LOCKLOST")
	})
}
