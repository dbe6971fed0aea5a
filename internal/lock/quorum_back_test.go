package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore"
	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// What an owner with a name had before a MULTILOCK that fails is still renewed, and is the owner's to give back: also when it said LOCK so
// often that the nodes no longer tell its attempts apart, and whichever proxy the MULTILOCK came through.
func TestQuorumTakesBackWhatIsNotToldApart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		one, two := ns.engine(t, "one", 0, Options{}), ns.engine(t, "two", 0, Options{})
		other, _ := client(one)
		mustLock(t, other, Request{Key: "z"})
		for _, through := range []*Manager{one, two} {
			for _, kind := range []Kind{Plain, Write, Read} {
				a, lost := client(one)
				r := Request{Key: kind.String(), Kind: kind, Owner: "job"}
				for range 20 {
					mustLock(t, a, r)
				}
				heldOn(t, ns, r.Key, 3, "on all")
				b, lostB := client(through)
				if _, err := b.MultiLock(context.Background(), []string{r.Key, "z"}, Request{Kind: kind, Owner: "job"}); err == nil {
					t.Fatal("a lock was given twice")
				}
				time.Sleep(2 * time.Minute)
				heldOn(t, ns, r.Key, 3, "renewed")
				if got := lost.reasons() + lostB.reasons(); got != "" {
					t.Error(got)
				}
				mustUnlock(t, a, UnlockRequest{Key: r.Key, Owner: "job", Side: kind}, true)
				heldOn(t, ns, r.Key, 0, "given back")
			}
		}
	})
}

// A LOCK that is said again, and that nobody hears of, leaves the owner's hold as it was, though the nodes no longer tell its attempts apart.
func TestQuorumUndoesWhatIsNotToldApart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 0, Options{})
		a, lost := client(m)
		r := Request{Key: "k", Owner: "job"}
		for range 20 {
			mustLock(t, a, r)
		}
		ns.far("one")
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		r.Blocks = true
		b, _ := client(m)
		if _, err := b.Lock(ctx, r); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		heldOn(t, ns, "k", 3, "renewed")
		if lost.reasons() != "" {
			t.Error(lost.reasons())
		}
		mustUnlock(t, a, UnlockRequest{Key: "k", Owner: "job"}, true)
	})
}

// What an owner had before is told lost when a MULTILOCK that fails finds that the nodes have it no more.
func TestQuorumTakesBackWhatHasGone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 0, Options{})
		a, lost := client(m)
		id := lockstore.ID{Key: "k", Kind: Plain, Owner: "job"}
		mustLock(t, a, Request{Key: id.Key, Owner: id.Owner})
		heldOn(t, ns, "k", 3, "on all")
		b := &multiLock{c: a, r: Request{Owner: id.Owner}}
		if err := b.take(context.Background(), id.Key, true); err != nil {
			t.Fatal(err)
		}
		for _, s := range ns.servers {
			s.Do(t, "FLUSHALL")
		}
		b.giveBack()
		eventually(t, time.Second, "told", func() bool { return lost.reasons() == "k:gone " })
	})
}

// While the nodes do not say what became of an attempt that is taken back, what its owner had before is renewed all the same, and so is what
// it was told meanwhile that it has.
func TestQuorumRenewsWhileItTakesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 0, Options{}, quorum.Options{NodeTimeout: 500 * time.Millisecond})
		a, lost := client(m)
		before, since := Request{Key: "before", Owner: "job"}, Request{Key: "since", Owner: "job"}
		mustLock(t, a, before)
		heldOn(t, ns, "before", 3, "on all")
		c, lostC := client(m)
		b := &multiLock{c: c, r: Request{Owner: "job"}}
		for _, key := range []string{"before", "since"} {
			if err := b.take(context.Background(), key, true); err != nil {
				t.Fatal(err)
			}
			heldOn(t, ns, key, 3, "on all")
		}
		mustLock(t, a, since)
		for i := range 2 {
			ns.link("one", i).Cut()
		}
		time.AfterFunc(3*time.Second, func() {
			for i := range 2 {
				ns.link("one", i).Heal()
			}
		})
		b.giveBack()
		time.Sleep(2 * time.Minute)
		for _, r := range []Request{before, since} {
			heldOn(t, ns, r.Key, 3, "renewed")
			mustUnlock(t, a, UnlockRequest{Key: r.Key, Owner: r.Owner}, true)
		}
		if got := lost.reasons() + lostC.reasons(); got != "" {
			t.Error(got)
		}
	})
}

// What a MULTILOCK that fails has taken, and has given back without hearing of it, is nobody's here, and nobody is told of it.
func TestQuorumTakesBackUnheard(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 0, Options{}, quorum.Options{NodeTimeout: 500 * time.Millisecond})
		a, lost := client(m)
		b := &multiLock{c: a, r: Request{Owner: "job"}}
		if err := b.take(context.Background(), "k", true); err != nil {
			t.Fatal(err)
		}
		heldOn(t, ns, "k", 3, "on all")
		for i := range ns.servers {
			ns.link("one", i).Swallow(world.Replies)
		}
		time.AfterFunc(time.Second, func() {
			for i := range ns.servers {
				ns.link("one", i).Cut()
				ns.link("one", i).Heal()
			}
		})
		b.giveBack()
		heldOn(t, ns, "k", 0, "given back")
		eventually(t, 20*time.Second, "not held here", func() bool { return m.Stats().Held == 0 })
		time.Sleep(time.Minute)
		if lost.reasons() != "" {
			t.Error(lost.reasons())
		}
	})
}

// An UNLOCK that comes while an attempt of its owner is still being taken back from a node gives the hold back there, too.
func TestQuorumUnlockWhileAnAttemptIsTakenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		m := ns.engine(t, "one", 0, Options{}, quorum.Options{NodeTimeout: 500 * time.Millisecond})
		a, _ := client(m)
		mustLock(t, a, Request{Key: "k", Owner: "job", Lease: 60000})
		heldOn(t, ns, "k", 3, "on all")
		b := &multiLock{c: a, r: Request{Owner: "job"}}
		if err := b.take(context.Background(), "k", true); err != nil {
			t.Fatal(err)
		}
		eventually(t, 5*time.Second, "two attempts are on all", func() bool {
			for _, s := range ns.servers {
				if s.Do(t, "HLEN", "lockproxy_votes:{k}:job").(int64) != 2 {
					return false
				}
			}
			return true
		})
		time.Sleep(time.Second) // a node drops only what counted before it was asked to, by the clock that this proxy thinks it has at least
		ns.link("one", 2).Cut()
		b.giveBack()
		mustUnlock(t, a, UnlockRequest{Key: "k", Owner: "job"}, true)
		heldOn(t, ns, "k", 1, "missed")
		ns.link("one", 2).Heal()
		heldOn(t, ns, "k", 0, "made up for")
	})
}
