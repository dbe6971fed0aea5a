package locks

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// redissonMultiLockTest: a lock of several locks is MULTILOCK.
var redissonMultiLockTest = redissonClass{
	name:    "RedissonMultiLockTest",
	methods: "testLockUnlock testWaitAndLeaseTimeouts testMultiThreads test RedissonLockReactiveTest.testMultiLock RedissonLockRxTest.testMultiLock",
	steps: map[string][]rwStep{
		"testLockUnlock": {
			{"a", "MULTILOCK 3 lock1 lock2 lock3 EX 10", ok}, {"a", "FENCED lock1 PING", pong}, {"a", "FENCED lock2 PING", pong}, {"a", "FENCED lock3 PING", pong},
			{"2b", "LOCK lock2", null}, {"a", "MULTIUNLOCK 3 lock1 lock2 lock3", ":3\r\n"}, {"a", "FENCED lock1 PING", rwNotHeld}, {"a", "FENCED lock3 PING", rwNotHeld},
			{"redis", "DBSIZE", no},
		},
		"testMultiThreads": {
			{"a", "MULTILOCK 3 lock1 lock2 lock3", ok}, {"2b", ">MULTILOCK 3 lock3 lock2 lock1 BLOCK 0", ""}, {"2b", "silent", ""},
			{"a", "MULTIUNLOCK 3 lock1 lock2 lock3", ":3\r\n"}, {"2b", "<", ok}, {"a", "MULTILOCK 2 free lock2", null}, {"2b", "MULTIUNLOCK 3 lock1 lock2 lock3", ":3\r\n"},
			{"redis", "DBSIZE", no},
		},
		// Three servers at Redisson; here all locks are on one.
		"test": {
			{"a", "MULTILOCK 3 lock1 lock2 lock3", ok}, {"b", "MULTILOCK 3 lock1 lock2 lock3", null}, {"2b", "MULTILOCK 3 lock1 lock2 lock3", null},
			{"2b", "MULTILOCK 2 free lock3", null}, {"redis", "EXISTS free", no}, {"a", "MULTIUNLOCK 3 lock1 lock2 lock3", ":3\r\n"}, {"b", "MULTILOCK 3 lock1 lock2 lock3", ok},
		},
		"RedissonLockReactiveTest.testMultiLock": {
			{"a", "MULTILOCK 3 lock1 lock2 lock3 OWNER 7 EX 30", ok}, {"b", "FENCED lock2 OWNER 7 PING", pong}, {"b", "MULTILOCK 3 lock1 lock2 lock3 OWNER 8 EX 30", null},
			{"2b", "MULTIUNLOCK 3 lock1 lock2 lock3 OWNER 7", ":3\r\n"}, {"redis", "EXISTS lock1 lock2 lock3", no},
		},
	},
	funcs: map[string]func(*testing.T){
		"testWaitAndLeaseTimeouts":                oneOfTenGetsAll,
		"not Redisson's: names in opposite order": oppositeOrders,
	},
	elsewhere: map[string]string{
		"RedissonLockRxTest.testMultiLock": "RedissonMultiLockTest.RedissonLockReactiveTest.testMultiLock",
	},
}

func TestRedissonMultiLock(t *testing.T) { redissonMultiLockTest.play(t) }

// oneOfTenGetsAll: ten ask at once and do not wait; exactly one has all three, and the others leave nothing behind.
func oneOfTenGetsAll(t *testing.T) {
	st := newStage(t)
	wires := make([]*harness.Wire, 10)
	for i := range wires {
		wires[i] = st.wire(string(rune('1'+i%2)) + "-" + string(rune('a'+i)))
	}
	answers, began := make([]string, len(wires)), time.Now()
	harness.Together(len(wires), func(i int) { answers[i], _ = wires[i].Try("MULTILOCK", "3", "lock1", "lock2", "lock3", "EX", "60") })
	winner := -1
	for i, got := range answers {
		switch {
		case got == ok && winner < 0:
			winner = i
		case got != null:
			t.Errorf("%d got %q, %d has all", i, got, winner)
		}
	}
	if winner < 0 || time.Since(began) > harness.Patience {
		t.Fatalf("after %v: %q", time.Since(began), answers)
	}
	harness.Expect(t, wires[winner], ":3\r\n", "MULTIUNLOCK", "3", "lock1", "lock2", "lock3")
	if got := harness.Keys(t, st.redis); len(got) != 0 {
		t.Errorf("%q are left", got)
	}
}

// oppositeOrders: 16 connections want two or three of five locks, each in its own order, for ever if need be. Redisson's lock
// each other out then until their leases end.
func oppositeOrders(t *testing.T) {
	const loops = 20
	st := newStage(t, byMessage...)
	wires, errs := make([]*harness.Wire, 16), make([]error, 16)
	for i := range wires {
		wires[i] = st.wire(fmt.Sprint(1+i%2, "-", i))
	}
	var inside [5]atomic.Int32
	harness.Together(len(wires), func(i int) {
		for n := range loops {
			first, step, count := i+n, 1+(i+n/3)%4, 2+(i+n)%2
			args := []string{"MULTILOCK", fmt.Sprint(count)}
			for k := range count {
				args = append(args, fmt.Sprint("lock", (first+k*step)%5))
			}
			got, err := wires[i].Try(append(args, "BLOCK", "0")...)
			if got != ok {
				errs[i] = errors.Join(err, errReply("MULTILOCK", got))
				return
			}
			for k := range count {
				if name := (first + k*step) % 5; inside[name].Add(1) != 1 {
					errs[i] = fmt.Errorf("two hold lock%d", name)
				}
			}
			for k := range count {
				inside[(first+k*step)%5].Add(-1)
			}
			args[0] = "MULTIUNLOCK"
			if got, err := wires[i].Try(args...); got != fmt.Sprintf(":%d\r\n", count) {
				errs[i] = errors.Join(err, errReply("MULTIUNLOCK", got))
				return
			}
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if got := harness.Keys(t, st.redis); len(got) != 0 {
		t.Errorf("%q are left", got)
	}
}
