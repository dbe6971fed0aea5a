package locks

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// redissonFairLockTest. A holder of 30 s and waits of 300 s are Redisson's; what it waits 10 to 45 s for is a second to nine here.
var redissonFairLockTest = redissonClass{
	name: "RedissonFairLockTest",
	methods: `testLeaseTimeout testMultipleLocks testWaitTimeoutDrift testLockAcquiredTimeoutDrift testAcquireFailedTimeoutDrift_Descrete
		testLockAcquiredBooleanTimeoutDrift_Descrete testLockAcquiredTimeoutDrift_Descrete testAbandonedTimeoutDrift_Descrete
		testFirstThreadDeathTimeoutDrift testTryLockNonDelayed testTryLockWait testForceUnlock testExpire testAutoExpire testGetHoldCount
		testIsHeldByCurrentThreadOtherThread testIsHeldByCurrentThread testIsLockedOtherThread testIsLocked testUnlockFail testLockUnlock
		testReentrancy testConcurrency_SingleInstance testConcurrencyLoop_MultiInstance testConcurrency_MultiInstance
		testConcurrency_MultiInstance_Ordering testNameMapper testAcquireFailedNotCalledOnRedisTimeout`,
	settings: []string{"--lock-watchdog-timeout", "6s"},
	steps: map[string][]rwStep{
		// A FAIRLOCK that does not wait never enters the queue.
		"testLockAcquiredBooleanTimeoutDrift_Descrete": {
			{"a", "FAIRLOCK k PX 60000", ok}, {"b", "FAIRLOCK k PX 3000", null}, {"c", "FAIRLOCK k PX 3000", null}, {"a", "UNLOCK k", yes}, {"b", "FAIRLOCK k PX 3000", ok},
			{"d", "FAIRLOCK k PX 3000", null}, {"c", "FAIRLOCK k PX 3000", null}, {"d", "FAIRLOCK k PX 3000", null}, {"redis", "EXISTS " + fairQueue + " " + fairTimes, no},
			{"", "sleep 3600", ""}, {"d", "FAIRLOCK k PX 3000", ok},
		},
		"testTryLockNonDelayed": {
			{"a", "FAIRLOCK k", ok}, {"b", "FAIRLOCK k BLOCK 200", null}, {"", "sleep 4000", ""}, {"redis", "EXISTS " + fairQueue + " " + fairTimes, no}, {"b", "UNLOCK k", rwNotHeld},
			{"a", "UNLOCK k", yes}, {"c", "FAIRLOCK k", ok}, {"c", "UNLOCK k", yes}, {"redis", "DBSIZE", no},
		},
		// No names are mapped here; that the queue is named after the lock is what the test asks.
		"testNameMapper": {
			{"a", "FAIRLOCK test::lock", ok}, {"b", ">FAIRLOCK test::lock BLOCK 0", ""}, {"redis", "~LLEN redisson_lock_queue:{test::lock}", yes},
			{"redis", "ZCARD redisson_lock_timeout:{test::lock}", yes}, {"a", "UNLOCK test::lock", yes}, {"b", "<", ok}, {"b", "UNLOCK test::lock", yes}, {"redis", "DBSIZE", no},
		},
	},
	funcs: map[string]func(*testing.T){
		"testLeaseTimeout": func(t *testing.T) { leasesInOrder(t, 1) },
		"not Redisson's: testLeaseTimeout, two proxies": func(t *testing.T) { leasesInOrder(t, 2) },
		"testMultipleLocks": func(t *testing.T) { // 100 for 500, 2 ms for 200
			lockAndCount(t, load{verb: "FAIRLOCK", proxies: 2, connections: 100, loops: 1, names: 1, inside: 2 * time.Millisecond})
		},
		"testConcurrency_SingleInstance": func(t *testing.T) {
			lockAndCount(t, load{verb: "FAIRLOCK", proxies: 1, connections: 15, loops: 1, names: 1})
		},
		"testConcurrencyLoop_MultiInstance": func(t *testing.T) { // four JVMs for 16, 20 loops for 100
			lockAndCount(t, load{verb: "FAIRLOCK", proxies: 4, connections: 16, loops: 20, names: 1, inside: 2 * time.Millisecond})
		},
		"testConcurrency_MultiInstance": func(t *testing.T) {
			lockAndCount(t, load{verb: "FAIRLOCK", proxies: 4, connections: 100, loops: 1, names: 1})
		},
		"testWaitTimeoutDrift":                   func(t *testing.T) { hammered(t, 17, "100") },
		"testLockAcquiredTimeoutDrift":           func(t *testing.T) { hammered(t, 1, "3000") },
		"testFirstThreadDeathTimeoutDrift":       deathAmongTheirs,
		"testAcquireFailedTimeoutDrift_Descrete": oneOfFourGivesUp,
		"testLockAcquiredTimeoutDrift_Descrete":  longWaits,
		"testAbandonedTimeoutDrift_Descrete":     pastTheAbandoned,

		"testConcurrency_MultiInstance_Ordering":   inOrder,
		"testAcquireFailedNotCalledOnRedisTimeout": givenUpWhileRedisPauses,
	},
}

func init() {
	// These are RLock's, word for word.
	for _, method := range []string{"testTryLockWait", "testForceUnlock", "testExpire", "testAutoExpire", "testGetHoldCount",
		"testIsHeldByCurrentThreadOtherThread", "testIsHeldByCurrentThread", "testIsLockedOtherThread", "testIsLocked", "testUnlockFail",
		"testLockUnlock", "testReentrancy"} {
		var steps []rwStep
		for _, s := range redissonLockTest.steps[method] {
			if strings.HasPrefix(strings.TrimLeft(s.call, ">~"), "LOCK ") {
				s.call = strings.Replace(s.call, "LOCK ", "FAIRLOCK ", 1)
			}
			steps = append(steps, s)
		}
		// A waiter whose BLOCK has run out has its place for two seconds more.
		redissonFairLockTest.steps[method] = append(steps, rwStep{"redis", "~EXISTS " + fairQueue + " " + fairTimes, no})
	}
}

func TestRedissonFairLock(t *testing.T) { redissonFairLockTest.play(t) }

// leasesInOrder: nobody unlocks. All get their turn when a lease of a second is over, in the order in which they came, and soon
// enough for the eighth, who waits for ten.
func leasesInOrder(t *testing.T, proxies int) {
	harness.Undisturbed(t, func() (wrong string) { return leasesServed(t, proxies) })
}

func leasesServed(t *testing.T, proxies int) (wrong string) {
	const n = 8
	st := newStage(t)
	wires := make([]*harness.Wire, n)
	for i := range wires {
		wires[i] = st.wire(fmt.Sprint(1+i%proxies, "-", i))
	}
	var served []int
	var mu sync.Mutex
	var group errgroup.Group
	last := ""
	for i, w := range wires {
		w.Send("FAIRLOCK", "k", "BLOCK", "10000", "PX", "1000")
		group.Go(func() error {
			got, err := w.TryRead(harness.Patience)
			mu.Lock()
			defer mu.Unlock()
			if served = append(served, i); got != ok {
				return errors.Join(err, errReply(fmt.Sprint("waiter ", i), got))
			}
			return nil
		})
		harness.Eventually(t, "it waits, or has it", func() bool {
			queue, _ := waiting(t, st.redis)
			mu.Lock()
			defer mu.Unlock()
			came := len(queue) > 0 && queue[len(queue)-1] != last
			if came {
				last = queue[len(queue)-1]
			}
			return came || slices.Contains(served, i)
		})
	}
	if err := group.Wait(); err != nil || !slices.IsSorted(served) || len(served) != n {
		return fmt.Sprintf("served in the order %v, %v", served, err)
	}
	consistent(t, st.redis, 0)
	return ""
}

// hammered: three keep trying with short waits, then one dies while it waits. No score runs away, and the dead one is in
// nobody's way for long.
func hammered(t *testing.T, tries int, block string) {
	const most = 11 * time.Second // 10 s, and a clock that is read a little later
	st := newStage(t)
	harness.Expect(t, st.wire("holder"), ok, "FAIRLOCK", "k", "PX", "600000")
	errs := make([]error, 3)
	wires := []*harness.Wire{st.wire("a"), st.wire("2b"), st.wire("c")}
	harness.Together(len(wires), func(i int) {
		for range tries {
			if got, err := wires[i].Try("FAIRLOCK", "k", "BLOCK", block, "PX", "30000"); got != null {
				errs[i] = fmt.Errorf("%q, %v", got, err)
				return
			}
		}
	})
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	queued(t, st.redis, 0)
	st.wire("3last").Send("FAIRLOCK", "k", "BLOCK", "30000", "PX", "30000")
	queued(t, st.redis, 1)
	st.proxy("3").Kill()
	consistent(t, st.redis, most)
	died := time.Now()
	harness.Expect(t, st.wire("a"), yes, "UNLOCK", "k", "FORCE")
	harness.Expect(t, st.wire("a"), ok, "FAIRLOCK", "k", "BLOCK", "30000")
	t.Logf("%v after its death the dead one was passed", time.Since(died).Round(100*time.Millisecond))
	queued(t, st.redis, 0)
}

// deathAmongTheirs: behind waiters of Redisson's, who say 300 s, a score lies as far ahead as theirs make necessary, no further.
func deathAmongTheirs(t *testing.T) {
	st := newStage(t)
	theirs := []*javaFair{newJavaFair(t, st.redis, 1), newJavaFair(t, st.redis, 2)}
	harness.Expect(t, st.wire("holder"), ok, "FAIRLOCK", "k", "PX", "90000")
	for i, j := range theirs {
		j.wait = 300 * time.Second
		j.try(30 * time.Second)
		queued(t, st.redis, 2*i+1)
		st.wire(fmt.Sprint(i+2)).Send("FAIRLOCK", "k", "BLOCK", "0", "PX", "30000")
		queued(t, st.redis, 2*i+2)
	}
	st.proxy("2").Kill()
	queue, left := waiting(t, st.redis)
	for i, owner := range queue {
		if most := 90*time.Second + 300*time.Second*time.Duration(i+1); left[owner] > most {
			t.Errorf("place %d: believed to live for %v, at most %v", i, left[owner], most)
		}
	}
	harness.Expect(t, st.wire("holder"), yes, "UNLOCK", "k")
	if granted, _ := theirs[0].try(time.Minute); !granted {
		t.Fatal("who is first did not get it")
	}
	theirs[0].unlock()
	// Behind the dead one there is one of theirs, and then ours. The 300 s that stood before the dead one went with the first.
	if err := theirs[1].lock(time.Minute); err != nil {
		t.Fatal(err)
	}
	theirs[1].unlock()
	if got := st.wire("3").Read(); got != ok {
		t.Fatal(got)
	}
	queued(t, st.redis, 0)
}

// oneOfFourGivesUp: two of Redisson's and two of ours in turn; the second gives up, and the others keep their places.
func oneOfFourGivesUp(t *testing.T) {
	const lease = 30 * time.Second
	st := newStage(t)
	first, third := newJavaFair(t, st.redis, 1), newJavaFair(t, st.redis, 3)
	second, fourth := st.wire("2b"), st.wire("2d")
	harness.Expect(t, st.wire("holder"), ok, "FAIRLOCK", "k", "PX", "60000")
	if _, left := first.try(lease); left < 20000 || left > 60000 {
		t.Errorf("the first of Redisson's is told to come back in %d ms", left)
	}
	id := fmt.Sprint(clientID(t, second))
	second.Send("FAIRLOCK", "k", "BLOCK", "60000")
	queued(t, st.redis, 2)
	third.try(lease)
	fourth.Send("FAIRLOCK", "k", "BLOCK", "60000")
	queued(t, st.redis, 4)
	before := consistent(t, st.redis, 11*time.Minute)
	harness.Expect(t, st.wire("2x"), yes, "CLIENT", "UNBLOCK", id, "TIMEOUT") // not before all four stand there
	if got := second.Read(); got != null {
		t.Fatal(got)
	}
	after := consistent(t, st.redis, 11*time.Minute)
	if want := slices.Delete(slices.Clone(before), 1, 2); !slices.Equal(after, want) {
		t.Errorf("%q are left of %q", after, before)
	}
	for _, j := range []*javaFair{first, third} {
		if granted, left := j.try(lease); granted || left < 20000 || left > 60000 {
			t.Errorf("asked again: %v, %d", granted, left)
		}
	}
	harness.Expect(t, st.wire("holder"), yes, "UNLOCK", "k")
	if granted, _ := third.try(lease); granted {
		t.Error("the third passed the first")
	}
	if granted, _ := first.try(lease); !granted {
		t.Error("the first did not get it")
	}
	first.unlock()
	if granted, _ := third.try(lease); !granted {
		t.Error("the third did not get it after the first")
	}
	if !fourth.Silent(moment) {
		t.Error("the fourth did not wait")
	}
	third.unlock()
	if got := fourth.Read(); got != ok {
		t.Error(got)
	}
	queued(t, st.redis, 0)
}

// pastTheAbandoned: two of Redisson's went without a word; who comes behind them gets the free lock when their time is over.
func pastTheAbandoned(t *testing.T) {
	st := newStage(t)
	holder := newJavaFair(t, st.redis, 1)
	if !holder.once(time.Minute) {
		t.Fatal("the lock is free")
	}
	st.proxy("1") // which has scripts of its own at the start
	for i := range 2 {
		j := newJavaFair(t, st.redis, 2+i)
		j.try(time.Minute)
		queued(t, st.redis, i+1)
	}
	// All stand there: now their times run out, the holder's in half a second.
	queue, _ := waiting(t, st.redis)
	st.redis.Do(t, "PEXPIRE", "k", 500)
	for i, owner := range queue {
		st.redis.Do(t, "ZADD", fairTimes, time.Now().Add(time.Duration(6+i)*100*time.Millisecond).UnixMilli(), owner)
	}
	before, began := scriptCalls(t, st.redis), time.Now()
	harness.Expect(t, st.wire("a"), ok, "FAIRLOCK", "k", "BLOCK", "20000")
	if calls, took := scriptCalls(t, st.redis)-before, time.Since(began); calls > 40+int(20*took/time.Second) {
		t.Errorf("it asked %d times in %v", calls, took)
	}
	queued(t, st.redis, 0)
}

// givenUpWhileRedisPauses: writes stand still while a wait ends; afterwards nothing of it is left in the queue.
func givenUpWhileRedisPauses(t *testing.T) {
	st := newStage(t)
	harness.Expect(t, st.wire("holder"), ok, "FAIRLOCK", "k", "PX", "60000")
	redis := st.wire("redis")
	st.wire("a").Send("FAIRLOCK", "k", "BLOCK", "4000")
	queued(t, st.redis, 1)
	harness.Expect(t, redis, ok, "CLIENT", "PAUSE", "5000", "WRITE")
	if got := st.wire("a").Read(); got != null {
		t.Fatal(got)
	}
	st.redis.Do(t, "CLIENT", "UNPAUSE")
	queued(t, st.redis, 0)
	consistent(t, st.redis, 0)
	harness.Expect(t, st.wire("holder"), yes, "UNLOCK", "k")
	harness.Expect(t, st.wire("b"), ok, "FAIRLOCK", "k")
}
