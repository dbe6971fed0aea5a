package locks

import (
	"testing"

	"github.com/lockproxy/lockproxy/integration/harness"
)

// redissonFencedLockTest. Our tokens begin with Redis' time, and rise with each FENCE; a LOCK without leaves them alone.
var redissonFencedLockTest = redissonClass{
	name:    "RedissonFencedLockTest",
	methods: "testTokenIncrease",
	funcs:   map[string]func(*testing.T){"testTokenIncrease": tokensRise},
}

// tokensRise takes the lock in all ways that there are; Redisson's own counting in between is followed.
func tokensRise(t *testing.T) {
	st := newStage(t)
	last := int64(0)
	rises := func(who string, args ...string) {
		t.Helper()
		token := harness.Number(t, st.wire(who).Do(args...))
		if token <= last {
			t.Fatalf("%q by %s: token %d after %d", args, who, token, last)
		}
		last = token
		if got := harness.Number(t, st.wire("redis").Do("INCRBY", "redisson_lock_token:{k}", "0")); got != token {
			t.Fatalf("getToken is %d, not %d", got, token)
		}
	}
	unlock := func(who string) { t.Helper(); harness.Expect(t, st.wire(who), yes, "UNLOCK", "k") }
	rises("a", "LOCK", "k", "FENCE")
	unlock("a")
	rises("a", "LOCK", "k", "FENCE")
	unlock("a")
	harness.Expect(t, st.wire("a"), ok, "LOCK", "k")
	unlock("a")
	harness.Expect(t, st.wire("redis"), ok, "SET", "redisson_lock_token:{k}", "7000000000000000") // far ahead of the clock: RFencedLock counts on from where we are
	last = harness.Number(t, st.wire("redis").Do("INCR", "redisson_lock_token:{k}"))
	rises("2b", "LOCK", "k", "EX", "10", "FENCE")
	unlock("2b")
	rises("2b", "LOCK", "k", "FENCE", "BLOCK", "10000")
	rises("2b", "LOCK", "k", "FENCE", "SELF") // re-entry, too, as Redisson's
	st.wire("a").Send("LOCK", "k", "FENCE", "BLOCK", "0")
	harness.Expect(t, st.wire("2b"), yes, "UNLOCK", "k", "ALL")
	if token := harness.Number(t, st.wire("a").Read()); token != last+1 {
		t.Fatalf("the waiter got %d after %d", token, last)
	}
	unlock("a")
	harness.Expect(t, st.wire("redis"), ":-1\r\n", "PTTL", "redisson_lock_token:{k}")
}

// redissonSpinLockTest: how Redisson polls is not to be seen; what it grants is RLock's.
var redissonSpinLockTest = redissonClass{
	name: "RedissonSpinLockTest",
	methods: `testRedisFailed testTryLockWait testLockUninterruptibly testForceUnlock testExpire testInCluster testAutoExpire testGetHoldCount
		testIsHeldByCurrentThreadOtherThread testIsHeldByCurrentThread testIsLockedOtherThread testIsLocked testUnlockFail testLockUnlock
		testReentrancy testConcurrency_SingleInstance testConcurrencyLoop_MultiInstance testConcurrency_MultiInstance testTryLockAsync
		testTimedTryLockAsync testTryLockAsyncWaitTime testTryLockAsyncFailed testTryLockAsyncSucceed`,
	steps: map[string][]rwStep{
		"testTryLockAsync":         {{"a", "LOCK k", ok}, {"b", ">LOCK k BLOCK 0", ""}, {"b", "silent", ""}, {"a", "UNLOCK k", yes}, {"b", "<", ok}},
		"testTimedTryLockAsync":    {{"a", "LOCK k", ok}, {"b", ">LOCK k BLOCK 20000 EX 30", ""}, {"b", "silent", ""}, {"a", "UNLOCK k", yes}, {"b", "<", ok}},
		"testTryLockAsyncWaitTime": {{"a", "LOCK k", ok}, {"b", "LOCK k BLOCK 1000", null}},
		"testTryLockAsyncFailed":   {{"a", "LOCK k", ok}, {"b", "LOCK k", null}},
		"testTryLockAsyncSucceed":  {{"a", "LOCK k", ok}},
		// Redisson's SpinLock never publishes: our waiter finds it free by its time left, and by its own looking.
		"not Redisson's: its unlock is heard by nobody": {
			{"redis", "HSET k 0f8fad5b-d9cb-469f-a165-70867728950e:52 1", yes}, {"redis", "PEXPIRE k 30000", yes}, {"a", ">LOCK k BLOCK 0", ""}, {"a", "silent", ""},
			{"redis", "DEL k", yes}, {"a", "<", ok},
		},
	},
	elsewhere: likeRLock("testRedisFailed", "testTryLockWait", "testLockUninterruptibly", "testForceUnlock", "testExpire", "testAutoExpire",
		"testGetHoldCount", "testIsHeldByCurrentThreadOtherThread", "testIsHeldByCurrentThread", "testIsLockedOtherThread", "testIsLocked",
		"testUnlockFail", "testLockUnlock", "testReentrancy", "testConcurrency_SingleInstance", "testConcurrencyLoop_MultiInstance",
		"testConcurrency_MultiInstance"),
	not: map[string]string{"testInCluster": cluster},
}

func likeRLock(methods ...string) map[string]string {
	m := map[string]string{}
	for _, method := range methods {
		m[method] = "RedissonLockTest." + method
	}
	return m
}

// redissonRenewalTest is RedissonLockExpirationRenewalTest, with its own watchdog of 1 s. Redis comes back empty: who held is told so, and what is
// taken then is renewed as if nothing had been.
var redissonRenewalTest = redissonClass{
	name:     "RedissonLockExpirationRenewalTest",
	methods:  "testWriteLockAfterTimeout testReadLockAfterTimeout testLockAfterTimeout testLockReentrantRenew",
	settings: []string{"--lock-watchdog-timeout", "1s"},
	steps: map[string][]rwStep{
		"testWriteLockAfterTimeout": afterRestart("WLOCK", "UNLOCK k WRITE"),
		"testReadLockAfterTimeout":  afterRestart("RLOCK", "UNLOCK k READ"),
		"testLockAfterTimeout":      afterRestart("LOCK", "UNLOCK k"),
		"testLockReentrantRenew": {
			{"a", "LOCK k", ok}, {"a", "LOCK k", ok}, {"a", "UNLOCK k", no}, {"a", "UNLOCK k", yes}, {"b", "LOCK k", ok}, {"", "sleep 3500", ""},
			{"redis", "PTTL k", "1..1000"}, {"a", "LOCK k", null}, {"b", "UNLOCK k", yes},
		},
	},
}

func afterRestart(verb, unlock string) []rwStep {
	return []rwStep{
		{"a", verb + " k", ok}, {"b", "PING", pong}, {"", "restart redis", ""}, {"b", "~" + verb + " other EX 60", ok}, {"a", unlock, rwLost}, {"a", verb + " k", ok}, {"", "sleep 3500", ""},
		{"redis", "PTTL k", "1..1000"}, {"b", "WLOCK k", map[bool]string{true: "-LOCKKIND ", false: null}[verb == "LOCK"]}, {"a", unlock, yes}, {"redis", "EXISTS k", no},
	}
}

// redissonNonReentrantTest is RedissonNonReentrantLockTest: the setting makes every connection's locks so.
var redissonNonReentrantTest = redissonClass{
	name:     "RedissonNonReentrantLockTest",
	methods:  "testContendingThreadBlocksAndAcquiresOnRelease testSameThreadReacquireThrows testCrossInstanceSameThreadReentryThrows",
	settings: []string{"--implicit-reentry", "never"},
	steps: map[string][]rwStep{
		"testContendingThreadBlocksAndAcquiresOnRelease": {
			{"a", "LOCK k", ok}, {"b", ">LOCK k BLOCK 0", ""}, {"b", "silent", ""}, {"a", "UNLOCK k", yes}, {"b", "<", ok}, {"b", "UNLOCK k", yes},
		},
		"testSameThreadReacquireThrows": {
			{"a", "LOCK k", ok}, {"a", "LOCK k BLOCK 0", "-OWNERREQUIRED "}, {"a", "LOCK k", "-OWNERREQUIRED "}, {"a", "LOCK k BLOCK 100", "-OWNERREQUIRED "},
			{"a", "UNLOCK k", yes}, {"b", "LOCK k", ok},
		},
		// An owner of two proxies is one owner, and has one hold.
		"testCrossInstanceSameThreadReentryThrows": {
			{"a", "LOCK k OWNER o EX 30", ok}, {"2a", "LOCK k OWNER o EX 30", ok}, {"2a", "UNLOCK k OWNER o", yes}, {"b", "LOCK k", ok},
		},
	},
}

// What is left of its tests of locks.
var redissonOtherTests = redissonClass{
	name: "others",
	methods: `LockOptionsTest.testExponentialBackoff LockOptionsTest.testConstantBackoff RedissonLockHeavyTest.lockUnlockRLock
		RedissonLockHeavyTest.tryLockUnlockRLock RedissonLockReactiveTest.testIsHeldByThread
		ReadLockEntryTest.shouldHaveNoThreadsAfterNonReentrantAcquireAndRelease ReadLockEntryTest.shouldHaveNoThreadsAfterReentrantAcquireAndRelease
		PublishSubscribeTest.testSubscribeForRaceCondition PublishSubscribeTest.testSubscribeNoTimeoutReleasesSemaphoreIfEntryIsMissing
		CountDownLatchPubSubTest.testOnZeroMessageAllListenersExecuted`,
	steps: map[string][]rwStep{
		"RedissonLockReactiveTest.testIsHeldByThread": {
			{"a", "LOCK k OWNER 7 EX 30", ok}, {"b", "FENCED k OWNER 7 PING", pong}, {"2b", "FENCED k OWNER 7 PING", pong}, {"a", "FENCED k OWNER 8 PING", rwNotHeld},
			{"a", "FENCED k PING", rwNotHeld}, {"b", "UNLOCK k OWNER 7", yes}, {"a", "FENCED k OWNER 7 PING", rwNotHeld},
		},
	},
	elsewhere: map[string]string{
		"RedissonLockHeavyTest.lockUnlockRLock":    "TestMutualExclusion",
		"RedissonLockHeavyTest.tryLockUnlockRLock": "RedissonLockTest.testConcurrencyTryLockUnLock",
	},
	not: map[string]string{
		"LockOptionsTest.testExponentialBackoff":                                       inJava,
		"LockOptionsTest.testConstantBackoff":                                          inJava,
		"ReadLockEntryTest.shouldHaveNoThreadsAfterNonReentrantAcquireAndRelease":      inJava,
		"ReadLockEntryTest.shouldHaveNoThreadsAfterReentrantAcquireAndRelease":         inJava,
		"PublishSubscribeTest.testSubscribeForRaceCondition":                           inJava,
		"PublishSubscribeTest.testSubscribeNoTimeoutReleasesSemaphoreIfEntryIsMissing": inJava,
		"CountDownLatchPubSubTest.testOnZeroMessageAllListenersExecuted":               inJava,
	},
}

// redissonRedLockTest was removed in 4.4.0.
var redissonRedLockTest = redissonClass{
	name: "RedissonRedLockTest",
	methods: `testLockLeasetimeWithMilliSeconds testLockLeasetimeWithSeconds testLockLeasetimeWithMinutes testTryLockLeasetime testLockFailed
		testLockSuccess2 testLockSuccess testConnectionFailed`,
	not: map[string]string{
		"testLockLeasetimeWithMilliSeconds": quorum, "testLockLeasetimeWithSeconds": quorum, "testLockLeasetimeWithMinutes": quorum, "testTryLockLeasetime": quorum,
		"testLockFailed": quorum, "testLockSuccess2": quorum, "testLockSuccess": quorum, "testConnectionFailed": quorum,
	},
}
