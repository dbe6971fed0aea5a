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
		m := bubbleEngine(t, w, s, "one", Options{Watchdog: lease})
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
		m := bubbleEngine(t, w, s, "one", Options{Watchdog: 4 * time.Second})
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

// TestReplicasTakeNobodysPlace: renewals that wait for a replica that has gone do not hold up others.
func TestReplicasTakeNobodysPlace(t *testing.T) {
	t.Parallel()
	const lease = 10 * time.Second // a renewal may be some seconds late
	s := testredis.Start(t)
	replica := testredis.Start(t, "--replicaof", "127.0.0.1", strconv.Itoa(s.Port()))
	eventually(t, 30*time.Second, "in step", func() bool {
		info, _ := s.Do(t, "INFO", "replication").([]byte)
		return strings.Contains(string(info), "state=online")
	})
	m := engine(t, s.URL(), Options{Watchdog: lease})
	c, lost := client(m)
	for db := range 16 { // a chunk each, and as many as there are places
		for _, kind := range lockstore.Kinds {
			lockCopied(t, c, Request{DB: db, Key: fmt.Sprint("copied-", uint8(kind), "-", db), Kind: kind, Replicas: 1})
		}
	}
	replica.Stop()
	defer replica.Cont()
	for i := range 20 {
		mustLock(t, c, Request{Key: fmt.Sprint("plain", i)})
		time.Sleep(lease / 20)
	}
	eventually(t, 30*time.Second, "those that want replicas are lost", func() bool { return strings.Count(lost.reasons(), "copied-") == 48 })
	if strings.Contains(lost.reasons(), "plain") {
		t.Errorf("lost: %s", lost.reasons())
	}
}

// TestChunksByDeadline: a chunk takes 500 holds of one kind, and the earliest deadline goes first.
func TestChunksByDeadline(t *testing.T) {
	m := New(sharded.Single(upstream.NewControl(upstream.Target{}, upstream.ControlOptions{})), Options{})
	now := time.Now()
	c := &Client{m: m, owner: "o"}
	m.watchdog.mu.Lock()
	defer m.watchdog.mu.Unlock()
	m.holds.mu.Lock()
	for i := range 1200 {
		h := m.holds.entry(lockstore.ID{Key: fmt.Sprint(i), Owner: "o", Kind: Kind(i % 2)}, false)
		m.holds.begin(h, c, 1)
		h.watched, h.lease, h.deadline = true, time.Minute, now.Add(time.Duration(2000-i)*time.Second)
		m.watchdog.enqueue(h)
	}
	ln := m.watchdog.laneOf(m.holds.byID[lockstore.ID{Key: "0", Owner: "o"}])
	m.holds.mu.Unlock()
	var sizes []int
	var last time.Time
	for ln.queue.Len() > 0 {
		b := ln.queue.First()
		ln.queue.Drop(b)
		if b.deadline.Before(last) {
			t.Errorf("a chunk for %v comes after one for %v", b.deadline.Sub(now), last.Sub(now))
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
		m := bubbleEngine(t, w, s, "one", Options{Watchdog: 20 * time.Second})
		c, lost := client(m)
		mustLock(t, c, Request{Key: "mine"})
		mustLock(t, c, Request{Key: "named", Owner: "me"})
		for _, owner := range []string{"", "me"} {
			id, named := c.id(Plain, 0, map[string]string{"": "mine", "me": "named"}[owner], owner)
			h, err := m.holds.enter(context.Background(), id, named)
			if err != nil {
				t.Fatal(err)
			}
			m.holds.mu.Lock()
			b := &chunk{chunkKey: m.holds.chunkOf(h), holds: []*hold{h}, planned: time.Now(), registrations: []lockstore.Registration{h.registration}}
			h.deadline = time.Now().Add(500 * time.Millisecond)
			m.holds.noteDeadline(h)
			m.holds.mu.Unlock()
			eventually(t, 15*time.Second, "told while it is renewed", func() bool { return strings.Contains(lost.reasons(), id.Key+":unrenewed ") })
			m.watchdog.renewChunk(b)
			if pttl(t, s, id.Key) < 10000 {
				t.Fatalf("%s was not renewed", id.Key)
			}
		}
		for _, key := range []string{"mine", "named"} {
			eventually(t, 15*time.Second, key+" is free", func() bool { return pttl(t, s, key) < 0 })
			if _, err := c.Unlock(context.Background(), UnlockRequest{Key: key, Owner: map[string]string{"named": "me"}[key]}); !isCode(err, "LOCKLOST") {
				t.Errorf("UNLOCK %s: %v", key, err)
			}
		}
	})
}

// TestRenewalAfterTheLossIsToldAndLockedElsewhere: what a renewal got that came after its loss was told is not taken back from a named owner
// that has said LOCK through another proxy meanwhile.
func TestRenewalAfterTheLossIsToldAndLockedElsewhere(t *testing.T) {
	for _, lease := range []int64{0, 60000} {
		t.Run(fmt.Sprintf("lease %d", lease), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				s := w.NewNode(bubbleAddr)
				m, n := bubbleEngine(t, w, s, "one", Options{}), bubbleEngine(t, w, s, "two", Options{})
				lockedAfterALoss(t, m, n, lease, func() bool { return pttl(t, s, "k") > 0 })
			})
		})
		t.Run(fmt.Sprintf("quorum, lease %d", lease), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				ns := bubbleNodes(w, 3)
				m, n := ns.engine(t, "one", 0, Options{}), ns.engine(t, "two", 0, Options{})
				lockedAfterALoss(t, m, n, lease, func() bool { return ns.holding(t, "k") > 1 })
			})
		})
	}
}

func lockedAfterALoss(t *testing.T, m, n *Manager, lease int64, there func() bool) {
	a, lost := client(m)
	b, _ := client(n)
	mustLock(t, a, Request{Key: "k", Owner: "me"})
	id, _ := a.id(Plain, 0, "k", "me")
	h, err := m.holds.enter(context.Background(), id, true)
	if err != nil {
		t.Fatal(err)
	}
	m.holds.mu.Lock()
	late := &chunk{chunkKey: m.holds.chunkOf(h), holds: []*hold{h}, planned: time.Now(), registrations: []lockstore.Registration{h.registration}}
	h.deadline = time.Now().Add(500 * time.Millisecond)
	m.holds.noteDeadline(h)
	m.holds.mu.Unlock()
	eventually(t, 15*time.Second, "told while it is renewed", func() bool { return lost.reasons() == "k:unrenewed " })
	m.watchdog.renewChunk(late)
	mustLock(t, b, Request{Key: "k", Owner: "me", Lease: lease})
	time.Sleep(20 * time.Second)
	if !there() {
		t.Error("it was taken back")
	}
	mustUnlock(t, b, UnlockRequest{Key: "k", Owner: "me"}, true)
}

// TestRenewAnsweredTooLate: a lease that was over before the answer of its RENEW came is none.
func TestRenewAnsweredTooLate(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", Options{})
		far := w.Proxy("one").Link(s.Addr())
		c, _ := client(m)
		mustLock(t, c, Request{Key: "mine"})
		mustLock(t, c, Request{Key: "named", Owner: "me"})
		if err := c.Renew(context.Background(), RenewRequest{Key: "mine"}); err != nil { // Redis knows the script
			t.Fatal(err)
		}
		far.Delay(200*time.Millisecond, 0)
		for key, owner := range map[string]string{"mine": "", "named": "me"} {
			if err := c.Renew(context.Background(), RenewRequest{Key: key, Owner: owner, Lease: 300}); !isCode(err, "LOCKLOST") {
				t.Errorf("RENEW %s PX 300, answered after 400 ms: %v", key, err)
			}
		}
		far.Heal()
		if _, err := c.Unlock(context.Background(), UnlockRequest{Key: "mine"}); !isCode(err, "LOCKLOST") {
			t.Errorf("UNLOCK: %v", err)
		}
		if got := m.Stats().Held; got != 0 {
			t.Errorf("%d locks are held", got)
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
			m := bubbleEngine(t, w, s, "one", Options{Watchdog: lease})
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
