package locks

import "testing"

// redissonReadWriteLock is RedissonReadWriteLockTest. Times are shortened: its watchdog of 30 s is 1 s here, leases of 10 s are a second or less.
var redissonReadWriteLock = redissonClass{
	name: "RedissonReadWriteLockTest",
	methods: `testReadLockExpiration testReadLockIsLocked testReadLockExpirationRenewal testName testWriteLockExpiration testInCluster
		testReadLockLeaseTimeoutDiffThreadsWRR testReadLockLeaseTimeoutDiffThreadsRRW testReadLockLeaseTimeout testWR testWriteRead
		testWriteReadReentrancy testWriteLock testMultiRead testForceUnlock testReadWriteTTL testExpireRead testExpireWrite testAutoExpire
		testHoldCount testIsHeldByCurrentThreadOtherThread testIsHeldByCurrentThread testIsLockedOtherThread testIsLocked testUnlockFail
		testLockUnlock testReentrancy testConcurrency_SingleInstance testConcurrencyLoop_MultiInstance testConcurrency_MultiInstance
		testMultiInstanceReadLockZombieCleanup testMultiInstanceZombieReadLockPerformance`,
	settings: []string{"--lock-watchdog-timeout", "3s"},
	steps:    redissonReadWriteLockSteps,
	elsewhere: map[string]string{
		"testWriteRead":                     "TestTwentyReadersBehindAWriter",
		"testConcurrency_SingleInstance":    "TestReadersAndWriters",
		"testConcurrencyLoop_MultiInstance": "TestReadersAndWriters",
		"testConcurrency_MultiInstance":     "TestReadersAndWriters",
	},
	not: map[string]string{
		"testInCluster": cluster,
		// Twenty zombies instead of one, to see how fast that is; the script's time does not hang on the dead.
		"testMultiInstanceZombieReadLockPerformance": "disabled by Redisson itself",
	},
}

func TestRedissonReadWriteLock(t *testing.T) { redissonReadWriteLock.play(t) }

var redissonReadWriteLockSteps = map[string][]rwStep{
	"testReadLockExpiration": { // writer gets in when the longer of two read leases is over
		{"a", "RLOCK k PX 5000", ok}, {"b", "RLOCK k PX 1000", ok}, {"w", "WLOCK k BLOCK 200", null}, {"", "sleep 1500", ""},
		{"w", "WLOCK k BLOCK 200", null}, {"w", "WLOCK k BLOCK 20000", ok}, {"a", "UNLOCK k", rwLost},
	},
	"testReadLockExpirationRenewal": { // over more than a lease of the watchdog
		{"a", "RLOCK k", ok}, {"b", "RLOCK k", ok}, {"a", "RLOCK k", ok}, {"", "sleep 4500", ""},
		{"a", "UNLOCK k", no}, {"a", "UNLOCK k", yes}, {"b", "UNLOCK k", yes}, {"a", "EXISTS k", no},
	},
	"testName": {
		{"a", "RLOCK {test}:abc:key", ok}, {"a", "RLOCK {test}:abc:key", ok}, {"a", "UNLOCK {test}:abc:key", no}, {"a", "UNLOCK {test}:abc:key", yes},
		{"a", "DBSIZE", no},
	},
	// Ours does not add the leases: the longer one counts.
	"testWriteLockExpiration": {
		{"a", "WLOCK k PX 5000", ok}, {"a", "WLOCK k PX 500", ok}, {"", "sleep 1000", ""}, {"b", "WLOCK k BLOCK 100", null}, {"b", "WLOCK k BLOCK 20000", ok},
	},
	"testReadLockLeaseTimeoutDiffThreadsWRR": {
		{"w", "WLOCK k PX 1500", ok}, {"a", "RLOCK k BLOCK 20000", ok}, {"b", "RLOCK k BLOCK 20000", ok}, {"w", "UNLOCK k", rwLost},
	},
	"testReadLockLeaseTimeoutDiffThreadsRRW": {
		{"a", "RLOCK k PX 4000", ok}, {"b", "RLOCK k", ok}, {"b", "UNLOCK k", yes}, {"w", "WLOCK k", null}, {"w", "WLOCK k BLOCK 20000", ok},
	},
	"testReadLockLeaseTimeout": {
		{"a", "RLOCK k PX 1500", ok}, {"a", "RLOCK k PX 2000", ok}, {"", "sleep 2500", ""}, {"w", "WLOCK k", ok}, {"a", "UNLOCK k", rwLost},
	},
	"testWR": {
		{"a", "WLOCK k", ok}, {"a", "RLOCK k", ok}, {"a", "UNLOCK k READ", yes}, {"b", "RLOCK k", null}, {"b", "WLOCK k", null},
		{"a", "UNLOCK k WRITE", yes}, {"a", "EXISTS k", no},
	},
	"testWriteReadReentrancy": { // where Redisson's WLOCK of an owner that reads answers false for ever, ours says why
		{"a", "WLOCK k", ok}, {"a", "RLOCK k", ok}, {"b", "RLOCK k", null}, {"a", "UNLOCK k WRITE", yes}, {"b", "RLOCK k", ok}, {"b", "UNLOCK k", yes},
		{"a", "WLOCK k", deadlock}, {"b", "WLOCK k", null}, {"a", "UNLOCK k READ", yes}, {"a", "WLOCK k", ok},
	},
	"testWriteLock": {
		{"a", "WLOCK k", ok}, {"a", "WLOCK k", ok}, {"b", "WLOCK k", null}, {"b", "RLOCK k", null}, {"a", "UNLOCK k", no}, {"b", "RLOCK k", null},
		{"a", "UNLOCK k", yes}, {"b", "RLOCK k", ok}, {"a", "WLOCK k", null}, {"a", "UNLOCK k WRITE", rwNotHeld},
	},
	"testMultiRead": {
		{"a", "RLOCK k", ok}, {"b", "RLOCK k", ok}, {"c", "RLOCK k", ok}, {"w", "WLOCK k", null}, {"a", "UNLOCK k", yes}, {"c", "UNLOCK k", yes},
		{"w", "WLOCK k", null}, {"b", "UNLOCK k", yes}, {"w", "WLOCK k", ok},
	},
	"testForceUnlock": {
		{"a", "WLOCK k", ok}, {"b", "UNLOCK k READ FORCE", no}, {"b", "RLOCK k", null}, {"b", "UNLOCK k WRITE FORCE", yes}, {"b", "RLOCK k", ok},
		{"a", "UNLOCK k WRITE FORCE", no}, {"a", "UNLOCK k READ FORCE", yes}, {"b", "UNLOCK k", rwLost}, {"a", "UNLOCK k WRITE", rwLost}, {"a", "DBSIZE", no},
	},
	"testReadWriteTTL": { // over more than a lease of the watchdog, both sides and then one
		{"a", "WLOCK k", ok}, {"a", "RLOCK k", ok}, {"", "sleep 4500", ""}, {"a", "UNLOCK k WRITE", yes}, {"", "sleep 4500", ""},
		{"w", "WLOCK k", null}, {"a", "UNLOCK k", yes},
	},
	"testExpireRead":  {{"a", "RLOCK k PX 1500", ok}, {"b", "WLOCK k BLOCK 20000", ok}, {"a", "UNLOCK k READ", rwLost}},
	"testExpireWrite": {{"a", "WLOCK k PX 1500", ok}, {"b", "WLOCK k BLOCK 20000", ok}, {"a", "UNLOCK k WRITE", rwLost}},
	"testAutoExpire": { // here the locks of a client that goes are freed at once
		{"a", "WLOCK k", ok}, {"a", "RLOCK k", ok}, {"a", "QUIT", ok}, {"b", "WLOCK k BLOCK 20000", ok},
	},
	"testHoldCount": {
		{"a", "RLOCK k", ok}, {"a", "LOCKINFO k", "read a:read=1"}, {"a", "RLOCK k", ok}, {"b", "RLOCK k", ok}, {"b", "LOCKINFO k", "read a:read=2 b:read=1"},
		{"a", "UNLOCK k ALL", yes}, {"b", "UNLOCK k", yes}, {"a", "LOCKINFO k", "none"}, {"a", "WLOCK k", ok}, {"a", "WLOCK k", ok}, {"a", "RLOCK k", ok},
		{"a", "LOCKINFO k", "write a:read=1 a:write=2"}, {"a", "UNLOCK k WRITE ALL", yes}, {"a", "LOCKINFO k", "read a:read=1"},
	},
	"testUnlockFail": {{"a", "WLOCK k", ok}, {"b", "UNLOCK k WRITE", rwNotHeld}, {"b", "UNLOCK k READ", rwNotHeld}, {"b", "UNLOCK k", rwNotHeld}, {"a", "UNLOCK k", yes}},
	"testLockUnlock": {{"a", "RLOCK k", ok}, {"a", "UNLOCK k", yes}, {"a", "RLOCK k", ok}, {"a", "UNLOCK k", yes}, {"a", "WLOCK k", ok}, {"a", "UNLOCK k", yes}, {"a", "WLOCK k", ok}, {"a", "UNLOCK k", yes}},
	"testReentrancy": {{"a", "WLOCK k", ok}, {"a", "WLOCK k", ok}, {"a", "UNLOCK k", no}, {"b", "WLOCK k", null}, {"a", "UNLOCK k", yes}, {"b", "WLOCK k", ok}},
	"not Redisson's: both sides and none named": {{"a", "WLOCK k", ok}, {"a", "RLOCK k", ok}, {"a", "UNLOCK k", "-ERR "}, {"a", "RENEW k", "-ERR "}, {"a", "RENEW k READ PX 9000", yes}, {"a", "RENEW k WRITE", yes}},
	"testMultiInstanceReadLockZombieCleanup": { // a reader that nobody renews any more; another holds on past its lease, and goes
		{"a", "RLOCK k PX 2000", ok}, {"b", "RLOCK k", ok}, {"", "sleep 4500", ""}, {"w", "WLOCK k", null}, {"b", "UNLOCK k", yes}, {"w", "WLOCK k BLOCK 2000", ok},
	},
	// isLocked and isHeldByCurrentThread of one side are what LOCKINFO says, and FENCED.
	"testReadLockIsLocked": {
		{"a", "WLOCK k", ok}, {"a", "LOCKINFO k", "write a:write=1"}, {"a", "FENCED k READ PING", rwNotHeld}, {"a", "RLOCK k BLOCK 10000", ok},
		{"a", "LOCKINFO k", "write a:read=1 a:write=1"}, {"a", "FENCED k READ PING", pong},
	},
	"testIsHeldByCurrentThreadOtherThread": {
		{"a", "RLOCK k", ok}, {"b", "FENCED k READ PING", rwNotHeld}, {"2b", "FENCED k PING", rwNotHeld}, {"a", "UNLOCK k", yes}, {"c", "FENCED k READ PING", rwNotHeld},
	},
	"testIsHeldByCurrentThread": {
		{"a", "FENCED k READ PING", rwNotHeld}, {"a", "RLOCK k", ok}, {"a", "FENCED k READ PING", pong}, {"a", "FENCED k WRITE PING", rwNotHeld},
		{"a", "UNLOCK k", yes}, {"a", "FENCED k READ PING", rwNotHeld},
	},
	"testIsLockedOtherThread": {
		{"a", "RLOCK k", ok}, {"b", "LOCKINFO k", "read a:read=1"}, {"2b", "LOCKINFO k", "read elsewhere:read=1"}, {"a", "UNLOCK k", yes}, {"c", "LOCKINFO k", "none"},
	},
	"testIsLocked": {{"a", "LOCKINFO k", "none"}, {"a", "RLOCK k", ok}, {"a", "LOCKINFO k", "read a:read=1"}, {"a", "UNLOCK k", yes}, {"a", "LOCKINFO k", "none"}},
	"not Redisson's: partial release": { // one of two read holds given back does not shorten the write lock
		{"a", "WLOCK k PX 600000", ok}, {"a", "RLOCK k PX 5000", ok}, {"a", "RLOCK k PX 5000", ok}, {"a", "UNLOCK k READ", no}, {"redis", "PTTL k", "300000..600000"},
		{"a", "UNLOCK k READ", yes}, {"redis", "PTTL k", "300000..600000"},
	},
	"not Redisson's: W, R, r": { // the end of the reading does not end the renewal of the write lock
		{"a", "WLOCK k", ok}, {"a", "RLOCK k", ok}, {"a", "UNLOCK k READ", yes}, {"", "sleep 4500", ""}, {"2b", "RLOCK k", null}, {"2b", "WLOCK k", null},
		{"a", "UNLOCK k WRITE", yes}, {"2b", "WLOCK k", ok},
	},
}
