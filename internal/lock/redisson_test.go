package lock

import (
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockproxy/lockproxy/internal/lockstore"
)

// Redisson's fair lock as its clients do it, in our own words, so that our waiters can be tried beside it without a JVM:
// KEYS lock, queue, timeouts, base channel; ARGV owner, now in ms, its wait in ms, lease in ms.
const purgeAsRedisson = `
local now = tonumber(ARGV[2])
while true do
  local head = redis.call('lindex', KEYS[2], 0)
  if not head then break end
  local score = redis.call('zscore', KEYS[3], head)
  if not score or tonumber(score) > now then break end
  redis.call('zrem', KEYS[3], head)
  redis.call('lpop', KEYS[2])
end
local function less()
  for _, key in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), key) end
end
`

var (
	fairAcquireAsRedisson = purgeAsRedisson + `
if redis.call('exists', KEYS[1]) == 0 and (redis.call('exists', KEYS[2]) == 0 or redis.call('lindex', KEYS[2], 0) == ARGV[1]) then
  redis.call('lpop', KEYS[2])
  redis.call('zrem', KEYS[3], ARGV[1])
  less()
  redis.call('hset', KEYS[1], ARGV[1], 1)
  redis.call('pexpire', KEYS[1], ARGV[4])
  return nil
end
if redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[1], 1)
  redis.call('pexpire', KEYS[1], ARGV[4])
  return nil
end
if redis.call('zscore', KEYS[3], ARGV[1]) then return math.max(0, redis.call('pttl', KEYS[1])) end
local last, ttl = redis.call('lindex', KEYS[2], -1), nil
local score = last and last ~= ARGV[1] and redis.call('zscore', KEYS[3], last)
if score then ttl = tonumber(score) - now else ttl = redis.call('pttl', KEYS[1]) end
if redis.call('zadd', KEYS[3], ttl + tonumber(ARGV[3]) + now, ARGV[1]) == 1 then redis.call('rpush', KEYS[2], ARGV[1]) end
return ttl`
	fairUnlockAsRedisson = purgeAsRedisson + `
local function tell()
  local head = redis.call('lindex', KEYS[2], 0)
  if head then redis.call('publish', KEYS[4] .. ':' .. head, '0') end
end
if redis.call('exists', KEYS[1]) == 0 then tell() return 1 end
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[4]) return 0 end
redis.call('del', KEYS[1])
tell()
return 1`
)

func timeoutsKey(name string) string { return lockstore.Prefixed("redisson_lock_timeout", name) }

func ticketsKey(name string) string { return lockstore.Prefixed("lockproxy_fair", name) }

// jvm is one thread of a Redisson client.
type jvm struct {
	t     *testing.T
	s     redisServer
	key   string
	owner string
	wait  int64 // ms
	skew  int64 // of its clock, ms
}

func (j *jvm) run(script string) any {
	j.t.Helper()
	return j.s.Do(j.t, "EVAL", script, 4, j.key, lockstore.QueueKey(j.key), timeoutsKey(j.key), lockstore.ChannelOf(j.key), j.owner, redisNow(j.t, j.s)+j.skew, j.wait, 30000)
}

// acquire says whether the lock was had; if not, the thread stands in the queue.
func (j *jvm) acquire() bool { j.t.Helper(); return j.run(fairAcquireAsRedisson) == nil }

func (j *jvm) unlock() { j.t.Helper(); j.run(fairUnlockAsRedisson) }

// redisNow is Redis' clock in ms.
func redisNow(t *testing.T, s redisServer) int64 {
	t.Helper()
	parts, err := redis.Int64s(s.Do(t, "TIME"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return parts[0]*1000 + parts[1]/1000
}
