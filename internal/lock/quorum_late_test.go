package lock

import (
	"context"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockstore/quorum"
	"github.com/lockproxy/lockproxy/internal/simulation/world"
)

// What comes late to a node of a quorum: each test is one order of events in which two had a lock, or nobody could have it any more.

// hasty are a node's times where a test counts in hundreds of milliseconds.
var hasty = quorum.Options{NodeTimeout: 200 * time.Millisecond}

// jobs are the engines of some proxies with a client each. The nodes' clocks are known, and the nodes know the scripts of plain locks.
func (ns *simulated) jobs(t *testing.T, proxies ...string) (engines map[string]*Manager, clients map[string]*Client, told map[string]*losses) {
	t.Helper()
	engines, clients, told = map[string]*Manager{}, map[string]*Client{}, map[string]*losses{}
	for _, name := range proxies {
		engines[name] = ns.engine(t, name, 0, Options{}, hasty)
		clients[name], told[name] = client(engines[name])
	}
	time.Sleep(2300 * time.Millisecond) // not beside a sample of the clocks
	for _, name := range proxies {
		mustLock(t, clients[name], Request{Key: "warm", Owner: "job"})
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

// A renewal finds that nodes lack the lock, and hears so late. They do not get it after an UNLOCK through another proxy has passed them.
func TestQuorumNodesGetNothingBackAfterAnUnlock(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		for _, thenLocked := range []bool{false, true} {
			inBubble(t, func(t *testing.T, w *world.World) {
				ns, few := bubbleNodes(w, nodes), nodes/2
				engines, c, _ := ns.jobs(t, "renews", "unlocks", "third")
				slow := func(by time.Duration) {
					for i := range few {
						ns.link("renews", nodes-1-i).Delay(by, 0)
					}
				}
				heal := func() {
					for i := range few {
						ns.link("renews", nodes-1-i).Heal()
					}
				}
				slow(300 * time.Millisecond) // these lack it
				mustLock(t, c["renews"], Request{Key: "k", Owner: "job"})
				time.Sleep(2 * time.Second)
				heal()
				time.Sleep(7900 * time.Millisecond)
				slow(190 * time.Millisecond)
				for i := range few {
					ns.away("unlocks", i)
				}
				last := int64(1 << 40)
				eventually(t, 5*time.Second, "renewed", func() bool {
					now := ns.servers[few].Do(t, "PTTL", "k").(int64)
					defer func() { last = now }()
					return now > last
				})
				mustUnlock(t, c["unlocks"], UnlockRequest{Key: "k", Owner: "job"}, true)
				if thenLocked {
					mustLock(t, c["third"], Request{Key: "k", Owner: "job", Lease: 500})
				}
				time.Sleep(time.Second)
				heal()
				time.Sleep(2 * time.Minute)
				if n := engines["renews"].Stats().Held; n > 0 || ns.holding(t, "k") > 0 {
					t.Errorf("%d nodes, then locked %v: %d holds are renewed, %d nodes have it", nodes, thenLocked, n, ns.holding(t, "k"))
				}
			})
		}
	}
}

// A LOCK's vote may also come after the UNLOCK to a node that had the lock by another LOCK of that owner.
func TestQuorumUnlockOvertakesAVoteWhereItWasHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		_, c, _ := ns.jobs(t, "first", "second")
		ns.away("first", 0)
		time.Sleep(2 * time.Second)
		mustLock(t, c["first"], Request{Key: "k", Owner: "job"}) // on 1 and 2
		time.Sleep(time.Second)
		ns.link("second", 2).Delay(190*time.Millisecond, 0)
		mustLock(t, c["second"], Request{Key: "other"})
		time.Sleep(250 * time.Millisecond) // 2 has not answered in time
		mustLock(t, c["second"], Request{Key: "k", Owner: "job"})
		mustUnlock(t, c["first"], UnlockRequest{Key: "k", Owner: "job"}, true)
		ns.link("second", 2).Heal()
		time.Sleep(2 * time.Minute)
		if n := ns.holding(t, "k"); n > 0 {
			t.Errorf("%d nodes have it for ever", n)
		}
	})
}

// Where an UNLOCK asks nodes once more it is not answered before that is done, or cannot be done any more.
func TestQuorumUnlockWaitsForItsSecondRound(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		_, c, _ := ns.jobs(t, "locks", "unlocks", "third", "fourth")
		ns.away("locks", 3, 4)
		mustLock(t, c["locks"], Request{Key: "k", Owner: "job"})
		ns.away("unlocks", 0)
		ns.away("third", 0, 1)
		time.Sleep(1200 * time.Millisecond)
		time.AfterFunc(400*time.Millisecond, func() {
			ns.link("unlocks", 4).Delay(250*time.Millisecond, 0)
			ns.servers[4].Jump(-100 * time.Millisecond) // it does for longer what it was sent
			ns.link("unlocks", 0).Heal()
		})
		mustUnlock(t, c["unlocks"], UnlockRequest{Key: "k", Owner: "job"}, true)
		mustLock(t, c["third"], Request{Key: "k", Owner: "job"})
		time.Sleep(time.Second)
		if _, err := c["fourth"].Lock(context.Background(), Request{Key: "k"}); err == nil {
			t.Error("two have it")
		}
	})
}

// A node whose clock has just been set back, by less than counts as set, keeps what its owner has taken since the UNLOCK that comes late.
func TestQuorumLateUnlockWhereTheClockWentBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		_, c, _ := ns.jobs(t, "unlocks", "locks", "third")
		mustLock(t, c["locks"], Request{Key: "k", Owner: "job"})
		time.Sleep(time.Second)
		ns.link("unlocks", 0).Delay(300*time.Millisecond, 0)
		mustLock(t, c["unlocks"], Request{Key: "other"})
		time.Sleep(250 * time.Millisecond) // 0 has not answered in time
		ns.link("unlocks", 0).Delay(190*time.Millisecond, 0)
		ns.servers[0].Jump(-200 * time.Millisecond)
		mustUnlock(t, c["unlocks"], UnlockRequest{Key: "k", Owner: "job"}, true)
		ns.away("locks", 2)
		mustLock(t, c["locks"], Request{Key: "k", Owner: "job"})
		time.Sleep(time.Second)
		if _, err := c["third"].Lock(context.Background(), Request{Key: "k"}); err == nil {
			t.Errorf("two have it; %d of the first one's two nodes kept it", ns.holding(t, "k", 2))
		}
	})
}

// That a hold which is not renewed has none to renew it is noted for as long as the hold lasts: a proxy that renewed an earlier one, and hears late
// that it has ended, does not take this one for it.
func TestQuorumLeaseIsNotTakenForAnEarlierHold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		_, c, _ := ns.jobs(t, "renews", "unlocks", "third")
		mustLock(t, c["renews"], Request{Key: "k", Owner: "job"})
		time.Sleep(time.Second)
		ns.away("renews", 2)
		ns.away("unlocks", 0)
		time.Sleep(24 * time.Second)
		mustUnlock(t, c["unlocks"], UnlockRequest{Key: "k", Owner: "job"}, true)
		mustLock(t, c["third"], Request{Key: "k", Owner: "job", Lease: 50_000})
		time.Sleep(10 * time.Second)
		ns.link("renews", 2).Heal()
		time.Sleep(3 * time.Minute)
		if n := ns.holding(t, "k"); n > 0 {
			t.Errorf("%d nodes have it for ever", n)
		}
	})
}

// That another connection has taken a hold over is believed only after a while, also when it seemed so of the owner's earlier hold: the other
// connection may take its votes back.
func TestQuorumNewHoldIsNotTakenOverAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		engines, c, told := ns.jobs(t, "renews", "unlocks", "third")
		mustLock(t, c["renews"], Request{Key: "k", Owner: "job"})
		time.Sleep(9 * time.Second)
		mustUnlock(t, c["unlocks"], UnlockRequest{Key: "k", Owner: "job"}, true)
		id, _ := c["renews"].id(Plain, 0, "k", "job")
		eventually(t, 5*time.Second, "seems taken over", func() bool { return !engines["renews"].holds.find(id).taken.IsZero() })
		mustLock(t, c["renews"], Request{Key: "k", Owner: "job"})
		for i := range ns.servers {
			ns.link("third", i).Delay(60*time.Millisecond, 0)
		}
		time.Sleep(9920 * time.Millisecond) // the first renewal comes while the third proxy's votes are there
		ctx, gone := context.WithCancel(context.Background())
		time.AfterFunc(100*time.Millisecond, gone)
		if _, err := c["third"].Lock(ctx, Request{Key: "k", Owner: "job", Blocks: true, Block: 5000}); err == nil {
			t.Fatal("its client has gone")
		}
		c["third"].Close(Gone)
		time.Sleep(40 * time.Second)
		if ns.holding(t, "k") == 0 && told["renews"].reasons() == "" {
			t.Error("it has gone, unheard")
		}
	})
}

// A MULTILOCK that fails leaves the registration of what its owner held: an UNLOCK through another proxy is not told as a loss.
func TestQuorumUnlockElsewhereAfterAMultiLockFailed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		engines, c, told := ns.jobs(t, "renews", "unlocks")
		other, _ := client(engines["renews"])
		mustLock(t, other, Request{Key: "z"})
		mustLock(t, c["renews"], Request{Key: "k", Owner: "job"})
		if _, err := c["renews"].MultiLock(context.Background(), []string{"k", "z"}, Request{Owner: "job"}); err == nil {
			t.Fatal("z is held")
		}
		time.Sleep(time.Second)
		mustUnlock(t, c["unlocks"], UnlockRequest{Key: "k", Owner: "job"}, true)
		time.Sleep(20 * time.Second)
		if _, err := c["renews"].Unlock(context.Background(), UnlockRequest{Key: "k", Owner: "job"}); told["renews"].reasons() != "" || isCode(err, "LOCKLOST") {
			t.Error(told["renews"].reasons(), err)
		}
	})
}

// UNLOCK FORCE that passes a node before the holder's vote comes there leaves no majority with the lock.
func TestQuorumForceOvertakesAVote(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		_, c, told := ns.jobs(t, "forces", "locks")
		for _, r := range everyKind() {
			r.Owner = ""
			ns.away("forces", 0)
			ns.link("locks", 2).Delay(50*time.Millisecond, 0)
			mustLock(t, c["locks"], r)
			mustUnlock(t, c["forces"], UnlockRequest{Key: r.Key, Side: r.Kind, Force: true}, true)
			ns.link("locks", 2).Heal()
			ns.link("forces", 0).Heal()
			time.Sleep(2 * time.Minute)
			if ns.holding(t, r.Key) > 0 || r.Lease == 0 && told["locks"].reasons() == "" {
				t.Errorf("%s: %d nodes have it; told %q", r.Key, ns.holding(t, r.Key), told["locks"].reasons())
			}
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

// A MULTILOCK with a lease that cannot ask enough nodes what its owner has fails: two nodes that have something left of the owner, and two that do not
// answer in time, would make it look as if the owner had a lock that is renewed.
func TestQuorumMultiLockThatCannotLook(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 5)
		engines, c, _ := ns.jobs(t, "locks")
		for _, s := range ns.servers[:2] {
			s.Do(t, "HSET", "k", "job", 1)
			s.Do(t, "PEXPIRE", "k", 60_000)
		}
		for i := range ns.servers {
			ns.link("locks", i).Delay(300*time.Millisecond, 0)
		}
		time.AfterFunc(200*time.Millisecond, func() {
			for i := range 3 {
				ns.link("locks", i).Heal()
			}
		})
		if _, err := c["locks"].MultiLock(context.Background(), []string{"k", "m"}, Request{Owner: "job", Lease: 500}); err != nil {
			wantCode(t, err, "NOQUORUM")
		}
		time.Sleep(2 * time.Minute)
		if n := engines["locks"].Stats().Held; n > 0 || ns.holding(t, "k") > 0 {
			t.Errorf("%d holds are renewed, %d nodes have it", n, ns.holding(t, "k"))
		}
	})
}

// A RENEW of a named owner that a node gets late does not shorten, or rename, what the owner has taken through another proxy since.
func TestQuorumRenewThatComesLate(t *testing.T) {
	for name, c := range map[string]struct {
		lease   int64
		unlocks bool
	}{"lease": {1000, true}, "lease, and no UNLOCK": {1000, false}, "no lease": {0, true}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world.World) {
				ns := bubbleNodes(w, 3)
				_, by, told := ns.jobs(t, "renews", "locks", "third")
				r := RenewRequest{Key: "k", Owner: "job"}
				mustLock(t, by["renews"], Request{Key: "k", Owner: "job"})
				if err := by["renews"].Renew(context.Background(), r); err != nil { // the nodes have the scripts
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				ns.link("renews", 2).Delay(190*time.Millisecond, 0)
				r.Lease = c.lease
				if err := by["renews"].Renew(context.Background(), r); err != nil {
					t.Fatal(err)
				}
				if c.unlocks {
					mustUnlock(t, by["third"], UnlockRequest{Key: "k", Owner: "job"}, true)
				}
				ns.away("locks", 1)
				mustLock(t, by["locks"], Request{Key: "k", Owner: "job"})
				time.Sleep(2 * time.Second)
				ns.link("renews", 2).Heal()
				if _, err := by["third"].Lock(context.Background(), Request{Key: "k"}); err == nil {
					t.Error("two have it")
				}
				time.Sleep(time.Minute)
				if lost := told["locks"].reasons(); lost != "" {
					t.Error(lost)
				}
			})
		})
	}
}

// The second round of an UNLOCK whose client has given up does not end what the owner has taken through another proxy since.
func TestQuorumSecondRoundLeavesTheNextHold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		_, c, _ := ns.jobs(t, "locks", "unlocks", "again", "third")
		ns.away("locks", 2)
		time.Sleep(time.Second)
		mustLock(t, c["locks"], Request{Key: "k", Owner: "job"}) // on 0 and 1
		ns.away("unlocks", 0)
		time.Sleep(1200 * time.Millisecond)
		ctx, gone := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c["unlocks"].Unlock(ctx, UnlockRequest{Key: "k", Owner: "job"})
		}()
		time.Sleep(100 * time.Millisecond)
		gone() // its client says it again through another proxy
		c["unlocks"].Close(Gone)
		if free, err := c["again"].Unlock(context.Background(), UnlockRequest{Key: "k", Owner: "job"}); !free && !isCode(err, "NOTHELD") {
			t.Fatal(free, err)
		}
		mustLock(t, c["again"], Request{Key: "k", Owner: "job"})
		<-done
		time.Sleep(time.Second)
		if _, err := c["third"].Lock(context.Background(), Request{Key: "k"}); err == nil {
			t.Error("two have it")
		}
	})
}

// Nor is a hold taken over at once that its owner has entered again since it seemed so.
func TestQuorumEnteredAgainIsNotTakenOverAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		engines, c, told := ns.jobs(t, "renews", "third")
		mustLock(t, c["renews"], Request{Key: "k", Owner: "job"})
		failing := func() {
			ctx, gone := context.WithCancel(context.Background())
			by, _ := client(engines["third"])
			time.AfterFunc(100*time.Millisecond, gone)
			_, _ = by.Lock(ctx, Request{Key: "k", Owner: "job", Blocks: true, Block: 5000})
			by.Close(Gone)
		}
		for i := range ns.servers {
			ns.link("third", i).Delay(60*time.Millisecond, 0)
		}
		time.Sleep(9920 * time.Millisecond) // the first renewal comes while the third proxy's votes are there
		go failing()
		time.Sleep(300 * time.Millisecond)
		id, _ := c["renews"].id(Plain, 0, "k", "job")
		if engines["renews"].holds.find(id).taken.IsZero() {
			t.Fatal("the renewal came at another time")
		}
		mustLock(t, c["renews"], Request{Key: "k", Owner: "job"})
		time.Sleep(9920 * time.Millisecond)
		failing()
		time.Sleep(40 * time.Second)
		if ns.holding(t, "k") == 0 && told["renews"].reasons() == "" {
			t.Error("it has gone, unheard")
		}
	})
}

// UNLOCK FORCE finds the owners of a read/write lock whose name is one hash tag, Redisson's too, and says what is no lock.
func TestQuorumForceOfOddNames(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		_, c, _ := ns.jobs(t, "forces", "holds")
		everywhere := func(words ...any) {
			for _, s := range ns.servers {
				s.Do(t, words...)
			}
		}
		for _, kind := range []Kind{Plain, Read, Write} {
			for _, owner := range []string{"", "job", "a:b"} {
				mustLock(t, c["holds"], Request{Key: "{k}", Kind: kind, Owner: owner})
				mustUnlock(t, c["forces"], UnlockRequest{Key: "{k}", Force: true}, true)
				if n := ns.holding(t, "{k}"); n > 0 {
					t.Errorf("%v %q: %d nodes have it", kind, owner, n)
				}
				time.Sleep(time.Minute)
			}
		}
		everywhere("HSET", "{k}", "mode", "write", "2b9b13b1-5e5d-47db-8d23-62069555210b:1:write", 1)
		mustUnlock(t, c["forces"], UnlockRequest{Key: "{k}", Force: true}, true)
		everywhere("HSET", "f", "field", "abc")
		everywhere("HSET", "m", "mode", "abc")
		for _, key := range []string{"f", "m"} {
			_, err := c["forces"].Unlock(context.Background(), UnlockRequest{Key: key, Force: true})
			wantCode(t, err, "WRONGTYPE")
		}
	})
}

// A writer that begins to read while UNLOCK FORCE is under way loses both.
func TestQuorumForceOfAWriterThatBeginsToRead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		_, c, _ := ns.jobs(t, "forces", "holds")
		mustLock(t, c["holds"], Request{Key: "other", Kind: Read}) // the nodes have the script
		for i := range ns.servers {
			ns.link("forces", i).Delay(30*time.Millisecond, 0)
		}
		for after := 10 * time.Millisecond; after < 250*time.Millisecond; after += 20 * time.Millisecond {
			mustLock(t, c["holds"], Request{Key: "k", Kind: Write})
			read := make(chan struct{})
			time.AfterFunc(after, func() {
				defer close(read)
				_, _ = c["holds"].Lock(context.Background(), Request{Key: "k", Kind: Read})
			})
			mustUnlock(t, c["forces"], UnlockRequest{Key: "k", Side: Write, Force: true}, true)
			forced := ns.holding(t, "k")
			<-read
			if before := after < 60*time.Millisecond; before && forced > 0 {
				t.Errorf("reading after %v: %d nodes have it", after, forced)
			}
			time.Sleep(2 * time.Second)
			c["holds"].Reset()
			time.Sleep(time.Minute)
		}
	})
}

// A LOCK's vote that comes late to a node which has the owner's hold by another proxy's LOCK makes that node take the hold for the first proxy's. If the
// second one does not reach another node, it cannot tell, and says at the end of the lease that the lock is lost. Nobody else gets it.
func TestQuorumHolderWhoseNodeWasRenamed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world.World) {
		ns := bubbleNodes(w, 3)
		_, c, told := ns.jobs(t, "first", "second", "third")
		ns.link("first", 2).Delay(190*time.Millisecond, 0)
		mustLock(t, c["first"], Request{Key: "k", Owner: "job"})
		ns.away("second", 1)
		mustLock(t, c["second"], Request{Key: "k", Owner: "job"})
		time.Sleep(time.Second)
		ns.link("first", 2).Heal()
		time.Sleep(time.Minute)
		if lost := told["second"].reasons(); lost != "k:unrenewed " {
			t.Errorf("the second proxy said %q", lost)
		}
		if _, err := c["third"].Lock(context.Background(), Request{Key: "k"}); err == nil || ns.holding(t, "k") < 3 {
			t.Errorf("%v; %d nodes have it", err, ns.holding(t, "k"))
		}
	})
}
