package locks

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// redissonLockTest. Its watchdog of 30 s is 6 s here, so that what takes it 15 to 45 s takes 9, and a machine that stalls ends no lease.
var redissonLockTest = redissonClass{
	name: "RedissonLockTest",
	methods: `testSubscriptionsPerConnection testSinglePubSub testLockIsNotRenewedAfterInterruptedTryLock testRedisFailed testRemainTimeToLive2
		testTryLockWait testLockUninterruptibly testForceUnlock testExpire testRemainTimeToLive testInCluster testAutoExpire testGetHoldCount
		testIsHeldByCurrentThreadOtherThread testIsHeldByCurrentThread testIsLockedOtherThread testIsLocked testLockFailoverInCluster
		testUnlockFail testLockUnlock testReentrancy testConcurrencyTryLockUnLock testConcurrency_SingleInstance
		testConcurrencyLoop_MultiInstance testConcurrency_MultiInstance testLockListener`,
	settings: []string{"--lock-watchdog-timeout", "6s"},
	steps: map[string][]rwStep{
		// A connection's LOCK ends with its client; a named owner has its lease.
		"testLockIsNotRenewedAfterInterruptedTryLock": {
			{"a", ">LOCK k", ""}, {"a", "close", ""}, {"b", ">LOCK o OWNER o EX 30", ""}, {"b", "close", ""}, {"c", ">LOCK r OWNER r EX 30", ""}, {"c", "reset", ""},
			{"", "sleep 9000", ""}, {"d", "LOCK k", ok}, {"d", "LOCK o", null}, {"d", "LOCK r", null},
		},
		"testRedisFailed": {{"a", "LOCK k", ok}, {"", "stop redis", ""}, {"a", "LOCK other BLOCK 5000 EX 10", "-ERR "}, {"", "sleep 7000", ""}, {"a", "UNLOCK k", rwLost}},
		"testRemainTimeToLive2": {
			{"a", "LOCK k EX 10", ok}, {"a", "LOCK k EX 10", ok}, {"a", "LOCK k EX 10", ok}, {"a", "UNLOCK k", no}, {"a", "UNLOCK k", no}, {"redis", "PTTL k", "5000..10000"},
		},
		"testTryLockWait": {{"a", "LOCK k", ok}, {"b", "LOCK k BLOCK 3000", null}, {"2b", "LOCK k BLOCK 1000", null}},
		// What a client sends while it waits does not end the wait.
		"testLockUninterruptibly": {
			{"a", "LOCK k EX 600", ok}, {"b", ">LOCK k BLOCK 0", ""}, {"b", ">PING", ""}, {"b", "silent", ""}, {"a", "UNLOCK k", yes}, {"b", "<", ok}, {"b", "<", pong},
		},
		"testForceUnlock": {
			{"a", "LOCK k", ok}, {"a", "UNLOCK k FORCE", yes}, {"a", "LOCKINFO k", "none"}, {"b", "LOCKINFO k", "none"}, {"a", "UNLOCK k", rwLost}, {"b", "LOCK k", ok},
		},
		"testExpire": {
			{"a", "LOCK k EX 6", ok}, {"b", "LOCK k", null}, {"b", "LOCK k BLOCK 20000", ok}, {"b", "UNLOCK k", yes}, {"a", "UNLOCK k", rwLost},
		},
		"testRemainTimeToLive": {
			{"a", "LOCK k EX 3600", ok}, {"redis", "PTTL k", "3580000..3600000"}, {"a", "UNLOCK k", yes}, {"redis", "PTTL k", ":-2\r\n"}, {"a", "LOCK k", ok},
			{"redis", "PTTL k", "1..6000"},
		},
		"testAutoExpire": {
			{"2a", "LOCK k", ok}, {"2a", "LOCK o OWNER o EX 10", ok}, {"", "kill 2", ""}, {"b", "LOCK k BLOCK 20000", ok}, {"b", "LOCK o BLOCK 20000", ok},
		},
		"testGetHoldCount": {
			{"a", "LOCKINFO k", "none"}, {"a", "LOCK k", ok}, {"a", "LOCKINFO k", "plain a=1"}, {"a", "UNLOCK k", yes}, {"a", "LOCKINFO k", "none"}, {"a", "LOCK k", ok},
			{"a", "LOCK k", ok}, {"a", "LOCKINFO k", "plain a=2"}, {"a", "UNLOCK k", no}, {"a", "LOCKINFO k", "plain a=1"}, {"a", "UNLOCK k", yes}, {"a", "LOCKINFO k", "none"},
		},
		// isHeldByCurrentThread is what FENCED finds.
		"testIsHeldByCurrentThreadOtherThread": {
			{"a", "LOCK k", ok}, {"b", "FENCED k PING", rwNotHeld}, {"2b", "FENCED k PING", rwNotHeld}, {"a", "UNLOCK k", yes}, {"b", "FENCED k PING", rwNotHeld},
		},
		"testIsHeldByCurrentThread": {
			{"a", "FENCED k PING", rwNotHeld}, {"a", "LOCK k", ok}, {"a", "FENCED k PING", pong}, {"a", "UNLOCK k", yes}, {"a", "FENCED k PING", rwNotHeld},
		},
		"testIsLockedOtherThread": {
			{"a", "LOCK k", ok}, {"b", "LOCKINFO k", "plain a=1"}, {"2b", "LOCKINFO k", "plain elsewhere=1"}, {"a", "UNLOCK k", yes}, {"b", "LOCKINFO k", "none"},
		},
		"testIsLocked":   {{"a", "LOCKINFO k", "none"}, {"a", "LOCK k", ok}, {"a", "LOCKINFO k", "plain a=1"}, {"a", "UNLOCK k", yes}, {"a", "LOCKINFO k", "none"}},
		"testUnlockFail": {{"a", "LOCK k", ok}, {"b", "UNLOCK k", rwNotHeld}, {"2b", "UNLOCK k", rwNotHeld}, {"b", "LOCK k", null}, {"a", "UNLOCK k", yes}},
		"testLockUnlock": {{"a", "LOCK k", ok}, {"a", "UNLOCK k", yes}, {"a", "LOCK k", ok}, {"a", "UNLOCK k", yes}},
		"testReentrancy": {
			{"a", "LOCK k", ok}, {"a", "LOCK k", ok}, {"a", "UNLOCK k", no}, {"", "sleep 9000", ""}, {"b", "LOCK k", null}, {"2b", "LOCK k", null},
			{"a", "UNLOCK k", yes}, {"a", "EXISTS k", no},
		},
	},
	funcs: map[string]func(*testing.T){
		"testSubscriptionsPerConnection": subscriptionsEnd,
		"testSinglePubSub": func(t *testing.T) { // two names, each wanted by two at once
			lockAndCount(t, load{verb: "LOCK", proxies: 1, connections: 8, loops: 1, names: 2})
		},
		"testConcurrencyTryLockUnLock": heldAmongOthers,
		"testConcurrency_SingleInstance": func(t *testing.T) {
			lockAndCount(t, load{verb: "LOCK", proxies: 1, connections: 15, loops: 1, names: 1})
		},
		"testConcurrencyLoop_MultiInstance": func(t *testing.T) { // four JVMs for 16, 20 loops for 100
			lockAndCount(t, load{verb: "LOCK", proxies: 4, connections: 16, loops: 20, names: 1, inside: 2 * time.Millisecond})
		},
		"testConcurrency_MultiInstance": func(t *testing.T) {
			lockAndCount(t, load{verb: "LOCK", proxies: 4, connections: 100, loops: 1, names: 1})
		},
		"testLockListener": eventsOfLocks,
	},
	not: map[string]string{"testInCluster": cluster, "testLockFailoverInCluster": cluster},
}

// load is connections that take locks and count within.
type load struct {
	verb                               string
	proxies, connections, loops, names int
	inside                             time.Duration
	more                               []string // settings
}

// byMessage are the settings with which a waiter that was not woken would wait for longer than its test does.
var byMessage = []string{"--wait-poll", "1m", "--lock-watchdog-timeout", "2m"}

// lockAndCount: nobody is beside another of the same name, none fails, and nothing is left.
func lockAndCount(t *testing.T, l load) *testredis.Server {
	s := testredis.Start(t)
	wires := make([]*harness.Wire, l.connections)
	for i := range l.proxies {
		p := harness.StartProxy(t, s.URL(), append(l.more, byMessage...)...)
		for j := i; j < len(wires); j += l.proxies {
			wires[j] = harness.Dial(t, p.Addr())
		}
	}
	inside, counts, errs := make([]atomic.Int32, l.names), make([]int, l.names), make([]error, len(wires))
	harness.Together(len(wires), func(i int) {
		for n := range l.loops {
			errs[i] = errors.Join(errs[i], l.once(wires[i], (i/2+n)%l.names, inside, counts))
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, n := range counts {
		sum += n
	}
	if sum != l.connections*l.loops {
		t.Errorf("counted %d of %d: %v", sum, l.connections*l.loops, counts)
	}
	if got := harness.Keys(t, s); len(got) != 0 {
		t.Errorf("%q are left", got)
	}
	return s
}

// once takes one lock and counts; the count is guarded by nothing but that lock.
func (l load) once(w *harness.Wire, name int, inside []atomic.Int32, counts []int) error {
	key := fmt.Sprint("lock-", name)
	if got, err := w.Try(l.verb, key, "BLOCK", "0"); err != nil || got != ok {
		return errors.Join(err, errReply(l.verb, got))
	}
	if n := inside[name].Add(1); n != 1 {
		return fmt.Errorf("%d hold %s", n, key)
	}
	counts[name]++
	time.Sleep(l.inside)
	inside[name].Add(-1)
	if got, err := w.Try("UNLOCK", key); err != nil || got != yes {
		return errors.Join(err, errReply("UNLOCK", got))
	}
	return nil
}

// subscriptionsEnd: five names, 32 connections, and at the end no channel is listened to.
func subscriptionsEnd(t *testing.T) {
	s := lockAndCount(t, load{verb: "LOCK", proxies: 1, connections: 32, loops: 30, names: 5, inside: time.Millisecond})
	harness.Eventually(t, "the channels are left", func() bool {
		channels, err := redis.Strings(s.Do(t, "PUBSUB", "CHANNELS"), nil)
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(channels, func(c string) bool { return strings.HasPrefix(c, "redisson_lock__channel") })
	})
}

// heldAmongOthers: while 16 connections lock and unlock all the time, what another one holds stays renewed.
func heldAmongOthers(t *testing.T) {
	s := testredis.Start(t)
	p := harness.StartProxy(t, s.URL(), "--lock-watchdog-timeout", "6s")
	holder, rival := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	harness.Expect(t, holder, ok, "LOCK", "held")
	wires, errs := make([]*harness.Wire, 16), make([]error, 16)
	for i := range wires {
		wires[i] = harness.Dial(t, p.Addr())
	}
	end, done := time.Now().Add(7*time.Second), make(chan struct{})
	go func() {
		defer close(done)
		harness.Together(len(wires), func(i int) {
			for n := 0; time.Now().Before(end) && errs[i] == nil; n++ {
				errs[i] = tryAndRelease(wires[i], fmt.Sprint("lock-", (i+n)%20))
			}
		})
	}()
	for time.Now().Before(end) {
		harness.Expect(t, rival, null, "LOCK", "held", "BLOCK", "100")
	}
	<-done
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	harness.Expect(t, holder, yes, "UNLOCK", "held")
}

// tryAndRelease is tryLock, and unlock where that was granted.
func tryAndRelease(w *harness.Wire, key string) error {
	got, err := w.Try("LOCK", key)
	if err != nil || got == null {
		return err
	}
	if got != ok {
		return errReply("LOCK", got)
	}
	if got, err = w.Try("UNLOCK", key); got != yes {
		return errors.Join(err, errReply("UNLOCK", got))
	}
	return err
}

// eventsOfLocks: Redis' keyspace events tell of a lock's end, through the proxy too, to those who listen.
func eventsOfLocks(t *testing.T) {
	s := testredis.Start(t, "--notify-keyspace-events", "Egx")
	p := harness.StartProxy(t, s.URL())
	w, listener := harness.Dial(t, p.Addr()), harness.Dial(t, p.Addr())
	harness.Expect(t, w, ok, "LOCK", "before") // no lock is given before the proxy has taken those for a try, of which Redis tells, too
	harness.Expect(t, w, yes, "UNLOCK", "before")
	for _, channel := range []string{"__keyevent@0__:expired", "__keyevent@0__:del"} {
		listener.Send("SUBSCRIBE", channel)
		listener.Read()
	}
	event := func(kind string) string {
		return fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$%d\r\n__keyevent@0__:%s\r\n$1\r\nk\r\n", len("__keyevent@0__:"+kind), kind)
	}
	harness.Expect(t, w, ok, "LOCK", "k", "PX", "4000")                         // longer than a busy machine takes to answer
	if got := listener.Read(); got != event("expired") && got != event("del") { // Redis ends the lease, or the proxy, whoever comes first
		t.Fatal(got)
	}
	harness.Expect(t, w, ok, "LOCK", "k")
	if !listener.Silent(moment) {
		t.Fatal(listener.Read())
	}
	harness.Expect(t, w, yes, "UNLOCK", "k")
	if got := listener.Read(); got != event("del") {
		t.Fatal(got)
	}
	listener.Do("UNSUBSCRIBE", "__keyevent@0__:del")
	harness.Expect(t, w, ok, "LOCK", "k")
	harness.Expect(t, w, yes, "UNLOCK", "k")
	if !listener.Silent(moment) {
		t.Fatal(listener.Read())
	}
}
