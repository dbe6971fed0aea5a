package locks

import (
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/integration/harness"
	"github.com/lockproxy/lockproxy/internal/testredis"
)

// javaFair is one thread of a Redisson client that uses the fair lock k: its scripts' steps, told apart by their names, on a
// connection past every proxy.
type javaFair struct {
	t     testing.TB
	c     redis.Conn
	sub   *harness.Wire // its subscriptions
	owner string
	wait  time.Duration // how long it says that it waits, which is what its score is made of
	clock time.Duration // how far its clock is ahead
}

const (
	fairQueue, fairTimes = "redisson_lock_queue:{k}", "redisson_lock_timeout:{k}"
	fairChannel          = "redisson_lock__channel:{k}"
)

var javaKeys = []any{"k", fairQueue, fairTimes}

// javaPurge drops heads whose time is over, as every script of the fair lock does first.
const javaPurge = `
local lock, queue, times = KEYS[1], KEYS[2], KEYS[3]
local owner, now, lease, wait = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
while true do
  local head = redis.call('lindex', queue, 0)
  local score = head and redis.call('zscore', times, head)
  if not score or tonumber(score) > now then break end
  redis.call('zrem', times, head)
  redis.call('lpop', queue)
end
`

// javaTake is both of its acquires: -9 granted, else the time that the caller sleeps; the last argument says whether it queues.
const javaTake = javaPurge + `
if redis.call('exists', lock) == 0 and (redis.call('exists', queue) == 0 or redis.call('lindex', queue, 0) == owner) then
  redis.call('lpop', queue)
  redis.call('zrem', times, owner)
  for _, other in ipairs(redis.call('zrange', times, 0, -1)) do redis.call('zincrby', times, -wait, other) end
  redis.call('hset', lock, owner, 1)
  redis.call('pexpire', lock, lease)
  return -9
end
if redis.call('hexists', lock, owner) == 1 then
  redis.call('hincrby', lock, owner, 1)
  redis.call('pexpire', lock, lease)
  return -9
end
if ARGV[5] == 'once' then return 1 end
if redis.call('zscore', times, owner) then return math.max(0, redis.call('pttl', lock)) end
local ttl, last = redis.call('pttl', lock), redis.call('lindex', queue, -1)
local score = last and last ~= owner and redis.call('zscore', times, last)
if score then ttl = tonumber(score) - now end
if redis.call('zadd', times, ttl + wait + now, owner) == 1 then redis.call('rpush', queue, owner) end
return ttl
`

// javaFailed is its acquireFailed: those behind move up by its wait.
const javaFailed = `
local queue, times, owner, wait, behind = KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[4]), false
for _, other in ipairs(redis.call('lrange', queue, 0, -1)) do
  if behind then redis.call('zincrby', times, -wait, other) end
  if other == owner then behind = true end
end
redis.call('zrem', times, owner)
redis.call('lrem', queue, 0, owner)
return 0
`

const javaUnlock = javaPurge + `
local head = redis.call('lindex', queue, 0)
if redis.call('exists', lock) == 1 then
  if redis.call('hexists', lock, owner) == 0 then return -1 end
  if redis.call('hincrby', lock, owner, -1) > 0 then return 0 end
  redis.call('del', lock)
  head = redis.call('lindex', queue, 0)
end
if head then redis.call('publish', KEYS[4] .. ':' .. head, '0') end
return 1
`

func newJavaFair(t testing.TB, s *testredis.Server, n int) *javaFair {
	return &javaFair{t: t, c: s.Dial(t), sub: harness.Dial(t, s.Addr()), owner: fmt.Sprintf("0f8fad5b-d9cb-469f-a165-70867728950e:%d", n), wait: 5 * time.Second}
}

func (j *javaFair) run(script string, lease time.Duration, how string) (int64, error) {
	return redis.Int64(j.c.Do("EVAL", j.words(script, lease, how)...))
}

func (j *javaFair) words(script string, lease time.Duration, how string) []any {
	keys := append([]any{script, 4}, javaKeys...)
	now := time.Now().Add(j.clock).UnixMilli()
	return append(keys, fairChannel, j.owner, now, lease.Milliseconds(), j.wait.Milliseconds(), how)
}

// tryAndLook is try, and the queue as it is then, before anybody else can do a thing.
func (j *javaFair) tryAndLook(lease time.Duration) []string {
	j.t.Helper()
	for _, words := range [][]any{{"MULTI"}, append([]any{"EVAL"}, j.words(javaTake, lease, "queue")...), {"LRANGE", fairQueue, 0, -1}} {
		if err := j.c.Send(words[0].(string), words[1:]...); err != nil {
			j.t.Fatal(err)
		}
	}
	replies, err := redis.Values(j.c.Do("EXEC"))
	if err != nil {
		j.t.Fatal(err)
	}
	queue, err := redis.Strings(replies[1], nil)
	if err != nil {
		j.t.Fatal(err)
	}
	return queue
}

// try is its acquire, which queues; left is the time left that it is told.
func (j *javaFair) try(lease time.Duration) (granted bool, left int64) {
	j.t.Helper()
	got, err := j.run(javaTake, lease, "queue")
	if err != nil {
		j.t.Fatal(err)
	}
	return got == -9, got
}

// once is its tryLock().
func (j *javaFair) once(lease time.Duration) bool {
	j.t.Helper()
	got, err := j.run(javaTake, lease, "once")
	if err != nil {
		j.t.Fatal(err)
	}
	return got == -9
}

// fail is what it does when its wait is over.
func (j *javaFair) fail() {
	j.t.Helper()
	if _, err := j.run(javaFailed, 0, ""); err != nil {
		j.t.Fatal(err)
	}
}

// unlock must be of the last hold.
func (j *javaFair) unlock() {
	j.t.Helper()
	if got, err := j.run(javaUnlock, 0, ""); err != nil || got != 1 {
		j.t.Fatalf("Redisson's unlock by %s: %d, %v", j.owner, got, err)
	}
}

// lock waits as Redisson does: it tries, listens to its own channel, tries again, and sleeps until it is woken or the time that
// it was told is over. For goroutines, too.
func (j *javaFair) lock(lease time.Duration) error {
	if got, err := j.run(javaTake, lease, "queue"); err != nil || got == -9 {
		return err
	}
	if _, err := j.sub.Try("SUBSCRIBE", fairChannel+":"+j.owner); err != nil {
		return err
	}
	for end := time.Now().Add(2 * harness.Patience); time.Now().Before(end); {
		got, err := j.run(javaTake, lease, "queue")
		if err != nil {
			return err
		}
		if got == -9 {
			_, err := j.sub.Try("UNSUBSCRIBE")
			return err
		}
		// A millisecond at least, where the real one would ask without pause.
		if !j.sub.Silent(max(time.Duration(got), 1) * time.Millisecond) {
			if _, err := j.sub.TryRead(harness.Patience); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%s never got the lock", j.owner)
}

// waiting is who stands in Redis' fair queue, and until when they are believed to live, from now.
func waiting(t testing.TB, s *testredis.Server) (queue []string, left map[string]time.Duration) {
	t.Helper()
	queue, err := redis.Strings(s.Do(t, "LRANGE", fairQueue, 0, -1), nil)
	if err != nil {
		t.Fatal(err)
	}
	scores, err := redis.Int64Map(s.Do(t, "ZRANGE", fairTimes, 0, -1, "WITHSCORES"), nil)
	if err != nil {
		t.Fatal(err)
	}
	left = map[string]time.Duration{}
	for owner, score := range scores {
		left[owner] = time.Until(time.UnixMilli(score))
	}
	return queue, left
}

// consistent says that queue and scores name the same waiters, each with a time that is not over and at most so long.
func consistent(t testing.TB, s *testredis.Server, most time.Duration) (queue []string) {
	t.Helper()
	queue, left := waiting(t, s)
	for _, owner := range queue {
		if until, ok := left[owner]; !ok || until <= 0 || until > most {
			t.Errorf("%s is believed to live for %v, in the scores %v; most is %v", owner, until, ok, most)
		}
	}
	if len(left) != len(queue) {
		t.Errorf("%d waiters %q, %d scores %v", len(queue), queue, len(left), left)
	}
	return queue
}

// queued waits until so many stand in the queue.
func queued(t testing.TB, s *testredis.Server, n int) {
	t.Helper()
	harness.Eventually(t, fmt.Sprint(n, " in the queue"), func() bool {
		queue, _ := waiting(t, s)
		return len(queue) == n
	})
}

// TestJavaFairIsRedissons holds the steps above to the figures of Redisson's own testAcquireFailedTimeoutDrift_Descrete.
func TestJavaFairIsRedissons(t *testing.T) {
	t.Parallel()
	const lease = 30 * time.Second
	s := testredis.Start(t)
	var j [5]*javaFair
	for i := range j {
		j[i] = newJavaFair(t, s, i)
	}
	told := func(i int, want time.Duration) {
		t.Helper()
		if granted, left := j[i].try(lease); granted || left > want.Milliseconds() || left < max(0, want.Milliseconds()-5000) {
			t.Errorf("%d is told to come back in %d ms, want %v", i, left, want)
		}
	}
	if granted, _ := j[0].try(lease); !granted {
		t.Fatal("a free lock")
	}
	for i := 1; i < 5; i++ {
		told(i, lease+time.Duration(i-1)*j[i].wait)
	}
	_, before := waiting(t, s)
	j[2].fail()
	queue, after := waiting(t, s)
	if len(queue) != 3 || before[j[3].owner]-after[j[3].owner] < 5*time.Second || before[j[1].owner]-after[j[1].owner] > 4*time.Second {
		t.Errorf("after the second gave up: %q, %v, before %v", queue, after, before)
	}
	for _, i := range []int{1, 3, 4} {
		told(i, lease)
	}
	heard := listen(t, s, fairChannel+":"+j[1].owner)
	j[0].unlock()
	expectHeard(t, heard, fairChannel+":"+j[1].owner+" 0")
	told(3, 0)
	if j[3].once(lease) {
		t.Error("once passed the head")
	}
	if granted, _ := j[1].try(lease); !granted {
		t.Error("the head did not get it")
	}
	told(3, lease)
	told(4, lease)
	if granted, _ := j[1].try(lease); !granted || hash(t, s, "k")[j[1].owner] != "2" {
		t.Error("it did not re-enter")
	}
}
