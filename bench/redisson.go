package main

// Redisson's steps on locks, in our own words: the same commands in the same order with the same KEYS and ARGV as those of its
// version 4.7, which docs/REDISSON-TESTS.md compares ours with. They are what the time of our scripts in Redis is measured against.

// redissonAcquire: KEYS lock; ARGV lease, owner.
const redissonAcquire = `
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])`

// redissonRelease: KEYS lock, channel, latch; ARGV message, lease, owner, PUBLISH, TTL of the latch.
const redissonRelease = `
local done = redis.call('get', KEYS[3])
if done ~= false then return tonumber(done) end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[3], 0, 'px', ARGV[5])
  return 0
end
redis.call('del', KEYS[1])
redis.call(ARGV[4], KEYS[2], ARGV[1])
redis.call('set', KEYS[3], 1, 'px', ARGV[5])
return 1`

// redissonRenew: KEYS locks; ARGV lease, then an owner for each.
const redissonRenew = `
local out = {}
for i = 1, #KEYS do
  if redis.call('hexists', KEYS[i], ARGV[i + 1]) == 1 then
    redis.call('pexpire', KEYS[i], ARGV[1])
    table.insert(out, 1)
  else
    table.insert(out, 0)
  end
end
return out`

// redissonFairAcquire: KEYS lock, queue, timeouts; ARGV lease, owner, what waiters wait, now.
const redissonFairAcquire = `
while true do
  local first = redis.call('lindex', KEYS[2], 0)
  if first == false then break end
  local score = redis.call('zscore', KEYS[3], first)
  if score ~= false and tonumber(score) <= tonumber(ARGV[4]) then
    redis.call('zrem', KEYS[3], first)
    redis.call('lpop', KEYS[2])
  else
    break
  end
end
if redis.call('exists', KEYS[1]) == 0 and (redis.call('exists', KEYS[2]) == 0 or redis.call('lindex', KEYS[2], 0) == ARGV[2]) then
  redis.call('lpop', KEYS[2])
  redis.call('zrem', KEYS[3], ARGV[2])
  local others = redis.call('zrange', KEYS[3], 0, -1)
  for i = 1, #others do redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), others[i]) end
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if redis.call('zscore', KEYS[3], ARGV[2]) ~= false then return math.max(0, redis.call('pttl', KEYS[1])) end
local last, ttl = redis.call('lindex', KEYS[2], -1), nil
local score = last ~= false and last ~= ARGV[2] and redis.call('zscore', KEYS[3], last)
if score then ttl = tonumber(score) - tonumber(ARGV[4]) else ttl = redis.call('pttl', KEYS[1]) end
if redis.call('zadd', KEYS[3], ttl + tonumber(ARGV[3]) + tonumber(ARGV[4]), ARGV[2]) == 1 then
  redis.call('rpush', KEYS[2], ARGV[2])
end
return ttl`

// redissonFairRelease: KEYS lock, queue, timeouts, channel, latch; ARGV message, lease, owner, now, PUBLISH, TTL of the latch.
const redissonFairRelease = `
local done = redis.call('get', KEYS[5])
if done ~= false then return tonumber(done) end
while true do
  local first = redis.call('lindex', KEYS[2], 0)
  if first == false then break end
  local score = redis.call('zscore', KEYS[3], first)
  if score ~= false and tonumber(score) <= tonumber(ARGV[4]) then
    redis.call('zrem', KEYS[3], first)
    redis.call('lpop', KEYS[2])
  else
    break
  end
end
if redis.call('exists', KEYS[1]) == 0 then
  local turn = redis.call('lindex', KEYS[2], 0)
  if turn ~= false then redis.call(ARGV[5], KEYS[4] .. ':' .. turn, ARGV[1]) end
  redis.call('set', KEYS[5], 1, 'px', ARGV[6])
  return 1
end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[5], 0, 'px', ARGV[6])
  return 0
end
redis.call('del', KEYS[1])
redis.call('set', KEYS[5], 1, 'px', ARGV[6])
local turn = redis.call('lindex', KEYS[2], 0)
if turn ~= false then redis.call(ARGV[5], KEYS[4] .. ':' .. turn, ARGV[1]) end
return 1`

// redissonReadAcquire: KEYS lock, what the keys of the owner's holds begin with; ARGV lease, owner, the owner as a writer.
const redissonReadAcquire = `
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call('hset', KEYS[1], 'mode', 'read')
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('set', KEYS[2] .. ':1', 1)
  redis.call('pexpire', KEYS[2] .. ':1', ARGV[1])
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if mode == 'read' or mode == 'write' and redis.call('hexists', KEYS[1], ARGV[3]) == 1 then
  local hold = KEYS[2] .. ':' .. redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('set', hold, 1)
  redis.call('pexpire', hold, ARGV[1])
  redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[1]))
  return nil
end
return redis.call('pttl', KEYS[1])`

// redissonReadRelease: KEYS lock, channel, what the keys of the owner's holds begin with, and of all holds, latch;
// ARGV message, owner, PUBLISH, TTL of the latch.
const redissonReadRelease = `
local done = redis.call('get', KEYS[5])
if done ~= false then return tonumber(done) end
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call(ARGV[3], KEYS[2], ARGV[1])
  redis.call('set', KEYS[5], 1, 'px', ARGV[4])
  return nil
end
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
local count = redis.call('hincrby', KEYS[1], ARGV[2], -1)
if count == 0 then redis.call('hdel', KEYS[1], ARGV[2]) end
redis.call('del', KEYS[3] .. ':' .. (count + 1))
if redis.call('hlen', KEYS[1]) > 1 then
  local longest = -3
  for _, field in ipairs(redis.call('hkeys', KEYS[1])) do
    local holds = tonumber(redis.call('hget', KEYS[1], field))
    if type(holds) == 'number' then
      for i = holds, 1, -1 do
        longest = math.max(redis.call('pttl', KEYS[4] .. ':' .. field .. ':rwlock_timeout:' .. i), longest)
      end
    end
  end
  if longest > 0 then
    redis.call('pexpire', KEYS[1], longest)
    redis.call('set', KEYS[5], 0, 'px', ARGV[4])
    return 0
  end
  if mode == 'write' then
    redis.call('set', KEYS[5], 0, 'px', ARGV[4])
    return 0
  end
end
redis.call('del', KEYS[1])
redis.call(ARGV[3], KEYS[2], ARGV[1])
redis.call('set', KEYS[5], 1, 'px', ARGV[4])
return 1`

// redissonReadRenew: KEYS for each lock its name and what the keys of all holds begin with; ARGV lease, then for each the number
// of its owners and those.
const redissonReadRenew = `
local out, arg = {}, 2
for i = 1, #KEYS, 2 do
  local alive = false
  for at = arg + 1, arg + tonumber(ARGV[arg]) do
    local count = redis.call('hget', KEYS[i], ARGV[at])
    if count ~= false then
      alive = true
      for hold = tonumber(count), 1, -1 do
        redis.call('pexpire', KEYS[i + 1] .. ':' .. ARGV[at] .. ':rwlock_timeout:' .. hold, ARGV[1])
      end
    end
  end
  arg = arg + 1 + tonumber(ARGV[arg])
  if alive then redis.call('pexpire', KEYS[i], ARGV[1]) end
  table.insert(out, alive and 1 or 0)
end
return out`

// The floors: the same steps with the least that a hold of a proxy's connection needs beside them. Each is done before a not-after by Redis'
// clock or not at all; it says what the count is to be, whether that made the hold, and finds a lock of another kind.

const floorClock = `
local time = redis.call('TIME')
if time[1] * 1000000 + time[2] > tonumber(ARGV[1]) then return -2 end`

// floorAcquire: KEYS lock, queue; ARGV not-after, owner, count, lease.
const floorAcquire = floorClock + `
if redis.call('EXISTS', KEYS[1], KEYS[2]) > 0 then return 0 end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {1, 1, tonumber(ARGV[4])}`

// floorRelease: KEYS lock, channel; ARGV not-after, owner, PUBLISH.
const floorRelease = floorClock + `
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 or redis.call('HEXISTS', KEYS[1], 'mode') == 1 then return -1 end
redis.call(ARGV[3], KEYS[2], '0')
redis.call('DEL', KEYS[1])
return 1`

// floorRenew: KEYS locks; ARGV not-after, then for each an owner and a lease, which shortens none.
const floorRenew = floorClock + `
local out = {}
for i, lock in ipairs(KEYS) do
  if redis.call('HEXISTS', lock, ARGV[2 * i]) == 1 and redis.call('HEXISTS', lock, 'mode') == 0 then
    redis.call('PEXPIRE', lock, ARGV[2 * i + 1], 'GT')
    out[i] = 1
  end
end
return out`

// redissonPermitAcquire: KEYS semaphore, its zset, channel; ARGV 1, end in ms, now in ms, the end of a permit without one, PUBLISH, id.
const redissonPermitAcquire = `
local over = redis.call('zrangebyscore', KEYS[2], 0, ARGV[3], 'limit', 0, ARGV[1])
if #over > 0 then
  redis.call('zrem', KEYS[2], unpack(over))
  local value = redis.call('incrby', KEYS[1], #over)
  if tonumber(value) > 0 then redis.call(ARGV[5], KEYS[3], value) end
end
local left = redis.call('get', KEYS[1])
if left ~= false and tonumber(left) >= tonumber(ARGV[1]) then
  redis.call('decrby', KEYS[1], ARGV[1])
  for i = 6, #ARGV, 1 do redis.call('zadd', KEYS[2], ARGV[2], ARGV[i]) end
  local ttl = redis.call('pttl', KEYS[1])
  if ttl > 0 then redis.call('pexpire', KEYS[2], ttl) end
  return 'OK'
end
local first = redis.call('zrange', KEYS[2], 0, 0, 'WITHSCORES')
if first[1] ~= nil and first[2] ~= ARGV[4] then return ':' .. tostring(first[2]) end
return nil`

// redissonPermitRelease: KEYS semaphore, channel, its zset; ARGV id, 1, now in ms, PUBLISH.
const redissonPermitRelease = `
local ends = redis.call('zscore', KEYS[3], ARGV[1])
local removed = redis.call('zrem', KEYS[3], ARGV[1])
if tonumber(removed) ~= 1 then return 0 end
local value = redis.call('incrby', KEYS[1], ARGV[2])
redis.call(ARGV[4], KEYS[2], value)
if tonumber(ends) <= tonumber(ARGV[3]) then return 0 end
return 1`
