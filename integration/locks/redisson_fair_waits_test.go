package locks

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// longWaits: who waits for longer than a score says keeps its place, since it is refreshed; a score never grows with time.
func longWaits(t *testing.T) {
	const most = 11 * time.Second
	st := newStage(t)
	theirs := newJavaFair(t, st.redis, 1)
	theirs.wait = 20 * time.Second
	harness.Expect(t, st.wire("holder"), ok, "FAIRLOCK", "k", "PX", "300000")
	for i, who := range []string{"1a", "2b", "1c"} {
		st.wire(who).Send("FAIRLOCK", "k", "BLOCK", "0", "PX", "300000")
		queued(t, st.redis, i+1)
	}
	theirs.try(time.Minute) // stays last; a score of its own takes ours for long
	queued(t, st.redis, 4)
	first, _ := waiting(t, st.redis)
	for end := time.Now().Add(13 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		queue, left := waiting(t, st.redis)
		if !slices.Equal(queue, first) {
			t.Fatalf("the queue was %q and is %q", first, queue)
		}
		for _, owner := range queue[:3] {
			if left[owner] <= 0 || left[owner] > most {
				t.Fatalf("%s is believed to live for %v, at most %v", owner, left[owner], most)
			}
		}
		// Whoever asks throws out those whose time is over: Redisson's contenders do it all the time.
		theirs.try(time.Minute)
	}
	last := "holder"
	for _, who := range []string{"1a", "2b", "1c"} {
		harness.Expect(t, st.wire(last), yes, "UNLOCK", "k")
		if got := st.wire(who).Read(); got != ok {
			t.Fatal(got)
		}
		last = who
	}
	harness.Expect(t, st.wire(last), yes, "UNLOCK", "k")
	if granted, _ := theirs.try(time.Minute); !granted {
		t.Error("Redisson's waiter, the last, did not get it")
	}
}

// inOrder: waiters of two proxies and of Redisson, one after the other, get the lock in the order in which they came.
func inOrder(t *testing.T) {
	const n = 18
	st := newStage(t)
	harness.Expect(t, st.wire("holder"), ok, "FAIRLOCK", "k")
	order, errs := make(chan int, n), make([]error, n)
	wires, theirs := make([]*harness.Wire, n), make([]*javaFair, n)
	for i := range n {
		if theirs[i] = newJavaFair(t, st.redis, i); i%3 < 2 {
			wires[i] = st.wire(fmt.Sprint(1+i%3, "-", i))
		}
		theirs[i].wait = 300 * time.Second
	}
	done := make(chan struct{})
	for i := range n {
		if wires[i] == nil {
			theirs[i].try(30 * time.Second)
		} else {
			wires[i].Send("FAIRLOCK", "k", "BLOCK", "0")
		}
		queued(t, st.redis, i+1)
	}
	go func() {
		defer close(done)
		harness.Together(n, func(i int) {
			if wires[i] == nil {
				if errs[i] = theirs[i].lock(30 * time.Second); errs[i] == nil {
					order <- i
					_, errs[i] = theirs[i].run(javaUnlock, 0, "")
				}
				return
			}
			got, err := wires[i].TryRead(2 * harness.Patience)
			if order <- i; got != ok {
				errs[i] = errors.Join(err, errReply("FAIRLOCK", got))
				return
			}
			if got, err := wires[i].Try("UNLOCK", "k"); got != yes {
				errs[i] = errors.Join(err, errReply("UNLOCK", got))
			}
		})
	}()
	harness.Expect(t, st.wire("holder"), yes, "UNLOCK", "k")
	<-done
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if got := <-order; got != i {
			t.Errorf("place %d was %d's", i, got)
		}
	}
	if got := harness.Keys(t, st.redis); len(got) != 0 {
		t.Errorf("%q are left", got)
	}
}

// A free lock whose first waiter died: nobody passes it while it may live, nobody asks without pause, and then it is passed.
func TestDeadHeadOfAFreeLock(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	dead := newJavaFair(t, st.redis, 1)
	dead.wait = 1500 * time.Millisecond
	wires := []*harness.Wire{st.wire("a"), st.wire("2b"), st.wire("c")}
	before, began := scriptCalls(t, st.redis), time.Now()
	harness.Expect(t, st.wire("holder"), ok, "FAIRLOCK", "k", "PX", "5000")
	dead.try(time.Minute) // is believed to live for 6.5 s
	if got := st.wire("holder").Do("UNLOCK", "k"); got != yes && time.Since(began) < 4*time.Second {
		t.Errorf("UNLOCK: %q", got)
	}
	for _, verb := range []string{"LOCK", "FAIRLOCK"} {
		if got := st.wire("a").Do(verb, "k"); got != null && time.Since(began) < 5*time.Second {
			t.Errorf("%s passed a live head: %q", verb, got)
		}
	}
	for _, w := range wires {
		w.Send("FAIRLOCK", "k", "BLOCK", "20000")
	}
	for range wires { // in any order: they came at once
		harness.Eventually(t, "one has it", func() bool {
			i := slices.IndexFunc(wires, func(w *harness.Wire) bool { return !w.Silent(time.Millisecond) })
			if i < 0 {
				return false
			}
			if got := wires[i].Read() + wires[i].Do("UNLOCK", "k"); got != ok+yes {
				t.Fatal(got)
			}
			wires = slices.Delete(wires, i, i+1)
			return true
		})
	}
	if calls, took := scriptCalls(t, st.redis)-before, time.Since(began); calls > 40+int(20*took/time.Second) {
		t.Errorf("%d scripts in %v", calls, took)
	}
	queued(t, st.redis, 0)
}

// A queue and scores that disagree: Redisson's waiters stand behind such a one for ever.
func TestBrokenFairQueue(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*testing.T){}
	for name, spoil := range map[string]func(st *stage){
		"a waiter without a score": func(st *stage) { st.redis.Do(st.t, "RPUSH", fairQueue, "nobody") },
		"a score without a waiter": func(st *stage) { st.redis.Do(st.t, "ZADD", fairTimes, time.Now().Add(time.Hour).UnixMilli(), "nobody") },
		"a waiter who is there twice": func(st *stage) {
			st.redis.Do(st.t, "RPUSH", fairQueue, "nobody", "nobody")
			st.redis.Do(st.t, "ZADD", fairTimes, time.Now().Add(time.Second).UnixMilli(), "nobody")
		},
		"a score that is long over": func(st *stage) {
			st.redis.Do(st.t, "RPUSH", fairQueue, "nobody")
			st.redis.Do(st.t, "ZADD", fairTimes, 1, "nobody")
		},
	} {
		for _, held := range []bool{false, true} {
			tests[fmt.Sprintf("%s, held %v", name, held)] = func(t *testing.T) {
				st := newStage(t)
				if held {
					harness.Expect(t, st.wire("holder"), ok, "FAIRLOCK", "k")
				}
				spoil(st)
				st.wire("a").Send("FAIRLOCK", "k", "BLOCK", "30000")
				if held {
					if !st.wire("a").Silent(moment) {
						t.Fatal(st.wire("a").Read())
					}
					harness.Expect(t, st.wire("holder"), yes, "UNLOCK", "k")
				}
				if got := st.wire("a").Read(); got != ok {
					t.Fatal(got)
				}
				harness.Expect(t, st.wire("a"), yes, "UNLOCK", "k")
				harness.Expect(t, st.wire("2b"), ok, "FAIRLOCK", "k")
			}
		}
	}
	sideBySide(t, tests)
}

// A Redisson client whose clock is 400 s ahead takes every waiter's time for over and throws it out: ours are back at their
// places before it. One whose clock is behind is thrown out itself, and is served all the same.
func TestFairClocks(t *testing.T) {
	t.Parallel()
	sideBySide(t, map[string]func(*testing.T){"ahead": clockAhead, "behind": clockBehind})
}

func clockAhead(t *testing.T) {
	st := newStage(t)
	harness.Expect(t, st.wire("holder"), ok, "FAIRLOCK", "k", "PX", "60000")
	st.wire("a").Send("FAIRLOCK", "k", "BLOCK", "0")
	queued(t, st.redis, 1)
	st.wire("2b").Send("FAIRLOCK", "k", "BLOCK", "0")
	queued(t, st.redis, 2)
	before, _ := waiting(t, st.redis)
	theirs := newJavaFair(t, st.redis, 1)
	theirs.clock, theirs.wait = 400*time.Second, 300*time.Second
	if queue := theirs.tryAndLook(30 * time.Second); !slices.Equal(queue, []string{theirs.owner}) {
		t.Fatalf("nobody was thrown out: %q", queue)
	}
	harness.Eventually(t, "ours are back at their places", func() bool {
		queue, _ := waiting(t, st.redis)
		return slices.Equal(queue, append(slices.Clone(before), theirs.owner))
	})
	harness.Expect(t, st.wire("holder"), yes, "UNLOCK", "k")
	for _, who := range []string{"a", "2b"} {
		if got := st.wire(who).Read(); got != ok {
			t.Fatal(got)
		}
		harness.Expect(t, st.wire(who), yes, "UNLOCK", "k")
	}
	if granted, _ := theirs.try(30 * time.Second); !granted {
		t.Error("Redisson's waiter did not get it")
	}
}

func clockBehind(t *testing.T) {
	st := newStage(t)
	theirs := newJavaFair(t, st.redis, 1)
	theirs.clock, theirs.wait = -400*time.Second, 300*time.Second
	harness.Expect(t, st.wire("holder"), ok, "FAIRLOCK", "k", "PX", "2000")
	theirs.try(time.Second)
	done := make(chan error)
	go func() { done <- theirs.lock(time.Second) }()
	for granted := 0; granted < 3; {
		got := st.wire("a").Do("FAIRLOCK", "k", "BLOCK", "20000", "PX", "300")
		if got == ok {
			granted++
		} else if !strings.HasPrefix(got, "-LOCKLOST ") { // on a busy machine the lease may be over while it is entered again
			t.Fatal(got)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	harness.Expect(t, st.wire("2b"), ok, "FAIRLOCK", "k", "BLOCK", "20000")
}
