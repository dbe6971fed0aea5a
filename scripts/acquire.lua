-- acquire takes the plain lock KEYS[1] for an owner, or takes it once more: Redisson's RLock acquire (hash owner -> count with a TTL), plus
-- a not-after and a fencing token. While live owners wait in the fair queue, only the first of them gets a free lock. An owner that waits
-- there and is refused enters the queue, as in Redisson's RFairLock, but with other scores (see enqueue.lua).
--
-- KEYS[1] lock hash
-- KEYS[2] its fair queue
-- KEYS[3] fencing token
-- ARGV[1] owner, the hash field
-- ARGV[2] the count that a connection's hold is to have: 1 makes the hold if it is not there, more do not. 0: a named owner, which has the
--         lock or not
-- ARGV[3] lease in ms, which shortens nothing
-- ARGV[4] not-after in µs of Redis' clock; after it nothing is done
-- ARGV[5] TTL of the fencing token in ms, 0 = none; '' = no token is wanted
-- ARGV[6] 1: the owner waits in the fair queue; 0: it does not
-- ARGV[7] the place that this waiter has there, 0 = none
-- ARGV[8] PUBLISH, SPUBLISH, or BOTH
-- RETURNS {1, made, ttl in ms, token or 0, expiry}  granted; made is 1 if the hold was not there, else 0; expiry, in ms since 1970, is a
--                                                   named owner's (see lease.lua), else 0
--         {0, 0, ttl in ms, place or 0, 0}  held by somebody else
--         {0, 1, ttl in ms, place or 0, 0}  free, but it is another waiter's turn, who counts as alive for ttl ms more
--         {-2, 0, 0, 0, 0}                  too late, nothing done
--         {-3, 0, 0, 0, 0}                  the key holds a lock of another kind
--         {-6, 0, 0, 0, 0}                  the hold that was to be taken once more has gone, nothing done
-- ERRORS  WRONGTYPE; ERR when the fencing token is not an integer below 2^53. Nothing is changed then.

local past, now = late(ARGV[4])
if past then return {-2, 0, 0, 0, 0} end
local lock, queue, owner, count, lease = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local function refused(turn, left)
  local place = 0
  if ARGV[6] == '1' then place = enqueue(lock, queue, owner, tonumber(ARGV[7]), now) end
  return {0, turn, left, place, 0}
end

local left, there, waiting = redis.call('PTTL', lock), false, nil
if left ~= -2 then
  if redis.call('HEXISTS', lock, 'mode') == 1 then return {-3, 0, 0, 0, 0} end
  there = redis.call('HEXISTS', lock, owner) == 1
  if not there then return count > 1 and {-6, 0, 0, 0, 0} or refused(0, left) end
elseif count > 1 then
  return {-6, 0, 0, 0, 0}
elseif redis.call('EXISTS', queue) == 1 then
  waiting = mind(queue, now)
  local turn, alive, gone = waiting.first(owner)
  if turn and turn ~= owner then
    if gone and turn ~= '' then tell(ARGV[8], beside(queue, 'redisson_lock__channel') .. ':' .. turn, '0') end
    return refused(1, alive)
  end
end

local token, refusal = 0, nil
if ARGV[5] ~= '' then
  token, refusal = next_token(KEYS[3], now)
  if not token then return refusal end
end
if there then allow_writes(lock) end
if token > 0 then keep_token(KEYS[3], token, ARGV[5]) end
if waiting then waiting.quit(owner) end

local made, expiry = there and 0 or 1, 0
if count == 0 then
  if there then
    expiry = joined(lock, now, lease)
  else
    redis.call('HSET', lock, owner, '1')
    expiry = even(now, lease)
  end
  left = expire(lock, expiry, now)
else
  redis.call('HSET', lock, owner, count)
  if left < lease then
    redis.call('PEXPIRE', lock, lease)
    left = lease
  end
end
return {1, made, left, token, expiry}
