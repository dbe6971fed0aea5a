-- release sets the count of an owner's hold of the plain lock KEYS[1], which ends with 0: Redisson's RLock unlock with a not-after.
-- It publishes before it deletes, so that nothing is changed if the service account may not publish. The first in the fair queue gets a
-- message on its own channel, too, the only one to which Redisson's waiters there listen. As Redisson's RFairLock, it publishes also when
-- nobody holds the lock any more, since no message has said that the lease had ended.
--
-- KEYS    those of acquire
-- ARGV[1] owner, the hash field
-- ARGV[2] the count that its hold is to have, 0 = none
-- ARGV[3] not-after in µs of Redis' clock; after it nothing is done
-- ARGV[4] the expiry, in ms since 1970, that the hold must have, or nothing is done: nobody has joined it then (see lease.lua); '' = any
-- ARGV[5] PUBLISH, SPUBLISH, or BOTH; '' = publish nothing, because a waiter gets the lock in the same script
-- RETURNS {1, 0}      the owner no longer holds the lock
--         {0, count}  it still does
--         {-1, 0}     it does not hold the lock, or not with that expiry
--         {-2, 0}     too late, nothing done
--         {-3, 0}     the key holds a lock of another kind
-- ERRORS  WRONGTYPE. Nothing is changed then.

local past, now = late(ARGV[3])
if past then return {-2, 0} end
local lock, owner, count = KEYS[1], ARGV[1], tonumber(ARGV[2])

if redis.call('HEXISTS', lock, owner) == 0 then
  if redis.call('EXISTS', lock) == 0 then
    if ARGV[5] ~= '' then announce(ARGV[5], KEYS[2], now) end
  elseif redis.call('HEXISTS', lock, 'mode') == 1 then
    return {-3, 0}
  end
  return {-1, 0}
end
if redis.call('HEXISTS', lock, 'mode') == 1 then return {-3, 0} end
if ARGV[4] ~= '' and expires_at(lock) ~= tonumber(ARGV[4]) then return {-1, 0} end

if count > 0 then
  allow_writes(lock)
  redis.call('HSET', lock, owner, count)
  return {0, count}
end
if ARGV[5] ~= '' then announce(ARGV[5], KEYS[2], now) end
redis.call('DEL', lock)
return {1, 0}
