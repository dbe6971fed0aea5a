-- acquire takes the plain lock KEYS[1] for an owner, or takes it once more: Redisson's RLock acquire (hash owner -> count with a TTL), plus
-- a not-after and a fencing token. While live owners wait in the fair queue, only the first of them gets a free lock. An owner that waits
-- there and is refused enters the queue, as in Redisson's RFairLock, but with other scores (see enqueue.lua).
--
-- KEYS[1] lock hash
-- KEYS[2] its fair queue
-- KEYS[3] fencing token
-- ARGV[1] owner, the hash field
-- ARGV[2] the count that a connection's hold is to have: 1 makes the hold if it is not there, more do not. Of a named owner, which has the
--         lock or not, what becomes of the lease of a hold that is there: lengthen, join or renew (see lease.lua)
-- ARGV[3] lease in ms, which shortens nothing, unless a named owner renews
-- ARGV[4] not-after in µs of Redis' clock; after it nothing is done
-- ARGV[5] 1 = a fencing token is wanted; '' = none
-- ARGV[6] the place that the owner, which waits, has in the fair queue, 0 = none yet; '' = it does not wait there
-- ARGV[7] PUBLISH, SPUBLISH, or BOTH
-- ARGV[8] the proxy that is to be woken if this is refused (see wake.lua), '' = none
-- ARGV[9] its place among those that are woken, 0 = none yet
-- RETURNS {1, made, ttl in ms, token or 0, expiry}  granted; made is 1 if the hold was not there, else 0; expiry, in ms since 1970, is a
--                                                   named owner's (see lease.lua), else 0
--         {0, 0, ttl in ms, place or 0, others}  held by somebody else; others is how many more wait in the fair queue, or elsewhere, proxies or JVMs
--         {0, 1, ttl in ms, place or 0, others}  free, but it is another waiter's turn, who counts as alive for ttl ms more
--         {-2, 0, 0, 0, 0}                  too late, nothing done
--         {-3, 0, 0, 0, 0}                  the key holds a lock of another kind
--         {-6, 0, 0, 0, 0}                  the hold that was to be taken once more has gone, nothing done
-- ERRORS  WRONGTYPE; ERR when the fencing token is not an integer below 2^53. Nothing is changed then.

local lock, queue, owner, place = KEYS[1], KEYS[2], ARGV[1], ARGV[6]
local named, first = not tonumber(ARGV[2]), ARGV[2] == '1'
local left, there = -2, false -- most locks are free, and nobody waits for them
local known = redis.call('EXISTS', lock, queue) > 0
if known then
  left, there = redis.call('PTTL', lock), redis.call('HEXISTS', lock, owner) == 1
  if redis.call('HEXISTS', lock, 'mode') == 1 then return {-3, 0, 0, 0, 0} end
end
if not (there or first or named) then return {-6, 0, 0, 0, 0} end
local held = left ~= -2 and not there
if held and place == '' and ARGV[8] == '' then return {0, 0, left, 0, 0} end
-- include clock
if clock > tonumber(ARGV[4]) then return {-2, 0, 0, 0, 0} end

local fair
if known and not there then -- somebody has the lock, or waits for it
  local function refused(turn, ttl)
    if ARGV[8] == '' then return {0, turn, ttl, 0, 0} end
    -- include beside wake writes
    allow_writes(lock)
    return {0, turn, ttl, await(KEYS, ARGV[8], tonumber(ARGV[9]), ARGV[7], beside(queue, 'redisson_lock__channel'))}
  end
  if held and place == '' then return refused(0, left) end
  -- include queue
  local turn, stays, gone
  if not held then
    fair = fair_queue(queue)
    turn, stays, gone = fair.first(owner)
  end
  if held or turn and turn ~= owner then
    if gone then fair.wake(ARGV[7], turn) end
    if place == '' then return refused(1, stays) end
    -- include enqueue
    return {0, held and 0 or 1, stays or left, places(lock, queue).enter(owner, tonumber(place)), redis.call('LLEN', queue) - 1}
  end
  if not turn then fair = nil end -- nobody waits
end

if there then
  -- include writes
  allow_writes(lock)
end
local token, refusal = 0, nil
if ARGV[5] ~= '' then
  -- include token
  token, refusal = next_token(KEYS[3])
  if not token then return refusal end
  redis.call('SET', KEYS[3], token)
end
if fair then fair.quit(owner) end
if ARGV[8] ~= '' and ARGV[9] ~= '0' then
  -- include wake
  redis.pcall('ZREM', wakes_of(KEYS), ARGV[8])
end

local made = there and 0 or 1
if named then
  -- include lease
  if not there then redis.call('HSET', lock, owner, '1') end
  local lasts, expiry = give_lease(lock, tonumber(ARGV[3]), there and ARGV[2] or 'make')
  return {1, made, lasts, token, expiry}
end
redis.call('HSET', lock, owner, ARGV[2])
local lease = tonumber(ARGV[3])
if left < lease then
  redis.call('PEXPIRE', lock, ARGV[3])
  left = lease
end
return {1, made, left, token, 0}
