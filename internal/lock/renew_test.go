package lock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// deadlineOf is until when the proxy is sure of a connection's hold; zero: it is not held.
func deadlineOf(m *Manager, id lockstore.ID) time.Time {
	h := m.holds.peek(id)
	if !h.live() {
		return time.Time{}
	}
	return m.holds.time(h.sure)
}

// shorter is a hold, and a shorter lease that it is given while no reply comes any more.
type shorter struct {
	hold  Request
	lease int64
}

func shorterLeases() (all []shorter) {
	for _, lease := range []int64{300, 1000, 4000, 20000} {
		for _, had := range []int64{0, 60000} {
			for _, kind := range lockstore.Kinds[:3] {
				all = append(all, shorter{Request{Kind: kind, Lease: had}, lease})
			}
		}
	}
	return all
}

// toldFirst gives a hold of a the shorter lease while cut has nothing come back to it any more, and fails the test when b has the lock
// before a was told that it is lost.
func toldFirst(t *testing.T, one shorter, a, b *Client, lost *losses, cut func()) {
	t.Helper()
	what := fmt.Sprintf("%+v, then %d ms", one.hold, one.lease)
	mustLock(t, a, one.hold)
	cut()
	began := time.Now()
	renewed := make(chan error, 1)
	go func() {
		renewed <- a.Renew(context.Background(), RenewRequest{Key: one.hold.Key, Owner: one.hold.Owner, Side: one.hold.Kind, Lease: one.lease})
	}()
	next := Request{Key: one.hold.Key, Kind: one.hold.Kind, Blocks: true}
	if one.hold.Kind == Read {
		next.Kind = Write
	}
	mustLock(t, b, next)
	took, told := time.Since(began), lost.reasons()
	if told == "" {
		t.Errorf("%s: somebody else has it after %v, and it is not told lost; held %d", what, took, a.Held())
	}
	if took < lockstore.Milliseconds(one.lease) {
		t.Errorf("%s: somebody else has it after %v", what, took)
	}
	if err := <-renewed; err == nil {
		t.Errorf("%s: no error", what)
	}
	if again := lost.reasons(); again != told {
		t.Errorf("%s: told %q, then %q", what, told, again)
	}
}

// A RENEW to a shorter lease whose reply is lost may have been done: its holder is told of the loss before anybody else has the lock.
func TestRenewToLessWhoseReplyIsLost(t *testing.T) {
	for _, one := range shorterLeases() {
		inBubble(t, func(t *testing.T, w *world.World) {
			one.hold.Key = "k"
			s := w.NewNode(bubbleAddr)
			m, n := bubbleEngine(t, w, s, "one", ManagerOptions{}), bubbleEngine(t, w, s, "two", ManagerOptions{})
			link := w.Proxy("one").Link(s.Addr())
			a, lost := client(m)
			b, _ := client(n)
			toldFirst(t, one, a, b, lost, func() {
				link.Swallow(world.Replies)
				time.AfterFunc(100*time.Millisecond, link.Cut)
			})
		})
	}
}

// So it is when nothing says that the reply is lost, and on a quorum.
func TestRenewToLessThatIsNotAnswered(t *testing.T) {
	for _, one := range shorterLeases() {
		one.hold.Key = "k"
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m, n := bubbleEngine(t, w, s, "one", ManagerOptions{}), bubbleEngine(t, w, s, "two", ManagerOptions{})
			a, lost := client(m)
			b, _ := client(n)
			toldFirst(t, one, a, b, lost, func() { w.Proxy("one").Link(s.Addr()).Swallow(world.Replies) })
		})
		inBubble(t, func(t *testing.T, w *world.World) {
			ns := bubbleNodes(w, 3)
			m, n := ns.engine(t, "one", 0, ManagerOptions{}), ns.engine(t, "two", 0, ManagerOptions{})
			a, lost := client(m)
			b, _ := client(n)
			toldFirst(t, one, a, b, lost, func() {
				for i := range ns.servers {
					ns.link("one", i).Swallow(world.Replies)
				}
			})
		})
	}
}

// A RENEW that surely was not done leaves the hold as it was.
func TestRenewToLessThatWasNotSent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		link := w.Proxy("one").Link(s.Addr())
		a, lost := client(m)
		mustLock(t, a, Request{Key: "k"})
		id := a.id(Plain, 0, "k", "")
		was := deadlineOf(m, id)
		link.Cut()
		time.Sleep(time.Second) // by then it is known
		if err := a.Renew(context.Background(), RenewRequest{Key: "k", Lease: 1000}); !lockstore.NotSent(err) {
			t.Fatal(err)
		}
		if is := deadlineOf(m, id); is != was {
			t.Errorf("it is believed in until %v, not %v", is, was)
		}
		time.Sleep(5 * time.Second)
		link.Heal()
		time.Sleep(time.Minute)
		if got := lost.reasons(); got != "" || pttl(t, s, "k") <= 0 {
			t.Errorf("%q, %d ms left", got, pttl(t, s, "k"))
		}
	})
}

// A shorter lease counts until its end, however late the reply that confirms it comes.
func TestRenewToLessThatIsConfirmedLate(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, _ := bubbleSlow(t, w, s, ManagerOptions{}) // the reply comes after 200 ms
		for _, lease := range []int64{205, 150} {
			a, lost := client(m)
			mustLock(t, a, Request{Key: "k"})
			began := time.Now()
			err := a.Renew(context.Background(), RenewRequest{Key: "k", Lease: lease})
			if lease > 200 && (err != nil || lost.reasons() != "") {
				t.Errorf("%d ms: %v, told %q", lease, err, lost.reasons())
			}
			if lease < 200 {
				wantCode(t, err, "LOCKLOST")
			}
			eventually(t, time.Second, "told", func() bool { return strings.HasPrefix(lost.reasons(), "k:") })
			if took := time.Since(began); took < lockstore.Milliseconds(lease) {
				t.Errorf("%d ms: told after %v", lease, took)
			}
			time.Sleep(time.Second)
		}
	})
}

// swallowFor has what is sent to Redis get lost for so long.
func swallowFor(link *world.Link, d time.Duration) {
	link.Swallow(world.Requests)
	time.AfterFunc(d, func() {
		link.Cut()
		link.Heal()
	})
}

// What was told lost for the sake of a RENEW that was not done after all is given back when Redis is back.
func TestRenewToLessThatWasSwallowed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, n := bubbleEngine(t, w, s, "one", ManagerOptions{}), bubbleEngine(t, w, s, "two", ManagerOptions{})
		link := w.Proxy("one").Link(s.Addr())
		a, lost := client(m)
		b, _ := client(n)
		mustLock(t, a, Request{Key: "k"})
		swallowFor(link, 10*time.Second)
		began := time.Now()
		got := locking(b, Request{Key: "k", Blocks: true})
		wantCode(t, a.Renew(context.Background(), RenewRequest{Key: "k", Lease: 1000}), "LOCKLOST")
		if told := lost.reasons(); told != "k:unrenewed " {
			t.Errorf("told %q", told)
		}
		granted(t, got, "the next one")
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("it has it after %v", took)
		}
	})
}

// A RENEW to a shorter lease that has no answer leaves the connection what it had, once Redis is back.
func TestRenewWithoutAnAnswerLeavesTheFormerEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		link := w.Proxy("one").Link(s.Addr())
		a, lost := client(m)
		mustLock(t, a, Request{Key: "k", Lease: 600_000})
		swallowFor(link, 10*time.Second)
		renew := RenewRequest{Key: "k", Lease: 20_000}
		if err := a.Renew(context.Background(), renew); err == nil {
			t.Fatal("the request was swallowed, and answered")
		}
		if time.Sleep(5 * time.Minute); lost.reasons() != "" || pttl(t, s, "k") < 200_000 {
			t.Errorf("told %q, %d ms are left", lost.reasons(), pttl(t, s, "k"))
		}
		if err := a.Renew(context.Background(), renew); err != nil {
			t.Fatal(err)
		}
		if time.Sleep(25 * time.Second); lost.reasons() != "k:expired " || pttl(t, s, "k") > 0 {
			t.Errorf("told %q, %d ms are left", lost.reasons(), pttl(t, s, "k"))
		}
	})
}

// A RENEW that no node of a quorum was sent changes nothing.
func TestQuorumRenewToLessThatWasNotSent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 0, ManagerOptions{})
		a, lost := client(m)
		mustLock(t, a, Request{Key: "k"})
		id := a.id(Plain, 0, "k", "")
		was := deadlineOf(m, id)
		for i := range ns.servers {
			ns.link("one", i).Cut()
		}
		time.Sleep(time.Second) // by then it is known
		began := time.Now()
		wantCode(t, a.Renew(context.Background(), RenewRequest{Key: "k", Lease: 2000}), "NOQUORUM")
		t.Logf("answered after %v", time.Since(began))
		if is := deadlineOf(m, id); is != was {
			t.Errorf("it is believed in until %v, not %v", is, was)
		}
		for i := range ns.servers {
			ns.link("one", i).Heal()
		}
		time.Sleep(time.Minute)
		if got := lost.reasons(); got != "" || ns.holding(t, "k") != 3 {
			t.Errorf("told %q, %d nodes have it", got, ns.holding(t, "k"))
		}
	})
}

// One lease is for all that a connection has of a read/write lock: RENEW of either side sets it.
func TestRenewIsForBothSides(t *testing.T) {
	for _, side := range []Kind{Read, Write} {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m := bubbleEngine(t, w, s, "one", ManagerOptions{})
			a, lost := client(m)
			for _, kind := range []Kind{Write, Read} {
				mustLock(t, a, Request{Key: "k", Kind: kind})
			}
			if err := a.Renew(context.Background(), RenewRequest{Key: "k", Side: side, Lease: 1000}); err != nil {
				t.Error(err)
			}
			if time.Sleep(900 * time.Millisecond); lost.reasons() != "" {
				t.Error(lost.reasons())
			}
			if time.Sleep(time.Second); lost.reasons() != "k:expired " || pttl(t, s, "k") > 0 {
				t.Errorf("told %q, %d ms are left", lost.reasons(), pttl(t, s, "k"))
			}
		})
	}
}

// TestRenewAnsweredTooLate: a lease that was over before the answer of its RENEW came is none, which is told once.
func TestRenewAnsweredTooLate(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m := bubbleEngine(t, w, s, "one", ManagerOptions{})
		far := w.Proxy("one").Link(s.Addr())
		c, _ := client(m)
		mustLock(t, c, Request{Key: "mine"})
		mustLock(t, c, Request{Key: "unlocked"})
		if err := c.Renew(context.Background(), RenewRequest{Key: "mine"}); err != nil { // Redis knows the script
			t.Fatal(err)
		}
		far.Delay(200*time.Millisecond, 0)
		for _, key := range []string{"mine", "unlocked"} {
			if err := c.Renew(context.Background(), RenewRequest{Key: key, Lease: 300}); !isCode(err, "LOCKLOST") {
				t.Errorf("RENEW %s PX 300, answered after 400 ms: %v", key, err)
			}
		}
		far.Heal()
		if _, err := c.Unlock(context.Background(), UnlockRequest{Key: "unlocked"}); !isCode(err, "NOTHELD") {
			t.Errorf("UNLOCK: %v", err)
		}
		if got := m.Stats().Held; got != 0 {
			t.Errorf("%d locks are held", got)
		}
	})
}

// TestSaidAgainAfterALostReply: a RENEW whose reply is lost is sent again, and answered by what is then.
func TestSaidAgainAfterALostReply(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		s := w.NewNode(bubbleAddr)
		m, p := bubbleSlow(t, w, s, ManagerOptions{})
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k"})
		done := make(chan error, 1)
		go func() { done <- a.Renew(context.Background(), RenewRequest{Key: "k", Lease: 60000}) }()
		eventually(t, 5*time.Second, "lengthened", func() bool { return pttl(t, s, "k") > 31000 })
		p.Drop()
		if err := <-done; err != nil || pttl(t, s, "k") < 50000 {
			t.Fatal(err, pttl(t, s, "k"))
		}
	})
}

// A named owner's RENEW whose reply was lost is sent again only to lengthen.
func TestRenewLostOnlyLengthens(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		for _, verb := range []string{"RENEW", "LOCK"} {
			t.Run(fmt.Sprintf("%v, then %s", kind, verb), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world.World) { renewLostBefore(t, w, kind, verb) })
			})
		}
	}
}

// renewLostBefore has an owner's RENEW lose its reply, and the owner say more over another proxy before it is sent again.
func renewLostBefore(t *testing.T, w *world.World, kind Kind, verb string) {
	s := w.NewNode(bubbleAddr)
	m, p := bubbleSlow(t, w, s, ManagerOptions{})
	a, _ := client(m)
	b, _ := client(bubbleEngine(t, w, s, "two", ManagerOptions{}))
	mustLock(t, a, Request{Key: "k", Kind: kind, Owner: "o", Lease: 5000})
	renew := func(c *Client, lease int64) error {
		return c.Renew(context.Background(), RenewRequest{Key: "k", Side: kind, Owner: "o", Lease: lease})
	}
	done := make(chan error, 1)
	go func() { done <- renew(a, 60_000) }()
	eventually(t, 5*time.Second, "lengthened", func() bool { return pttl(t, s, "k") > 5000 })
	if verb == "LOCK" {
		mustLock(t, b, Request{Key: "k", Kind: kind, Owner: "o", Lease: 300_000})
	} else if err := renew(b, 300_000); err != nil {
		t.Fatal(err)
	}
	p.Drop()
	if err := <-done; err != nil {
		t.Error("the RENEW whose reply was lost says", err)
	}
	time.Sleep(time.Minute)
	if left := pttl(t, s, "k"); left < 200_000 || left > 240_000 {
		t.Errorf("%d ms are left", left)
	}
}

// A named owner's RENEW that was lost before Redis saw it is done when it is sent again.
func TestRenewLostBeforeRedisSawIt(t *testing.T) {
	for _, kind := range lockstore.Kinds {
		inBubble(t, func(t *testing.T, w *world.World) {
			s := w.NewNode(bubbleAddr)
			m, p := bubbleSlow(t, w, s, ManagerOptions{})
			a, _ := client(m)
			mustLock(t, a, Request{Key: "k", Kind: kind, Owner: "o", Lease: 30_000})
			renew := RenewRequest{Key: "k", Side: kind, Owner: "o", Lease: 30_000}
			if err := a.Renew(context.Background(), renew); err != nil { // so that what is sent next is the script
				t.Fatal(err)
			}
			p.Swallow(world.Requests)
			time.AfterFunc(50*time.Millisecond, func() { p.Cut(); p.Heal() })
			renew.Lease = 300_000
			if err := a.Renew(context.Background(), renew); err != nil {
				t.Error(kind, err)
			}
			if left := pttl(t, s, "k"); left < 200_000 {
				t.Errorf("%v: %d ms are left", kind, left)
			}
		})
	}
}
