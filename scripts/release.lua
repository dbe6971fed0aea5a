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
-- ARGV[6] the proxy that gives it back, as one that is woken (see wake.lua), or ''
-- RETURNS 1  the owner no longer holds the lock
--         0  it still does
--         -1 it does not hold the lock, or not with that expiry
--         -2 too late, nothing done
--         -3 the key holds a lock of another kind
-- ERRORS  WRONGTYPE. Nothing is changed then.

-- include clock

local lock, owner, publish = KEYS[1], ARGV[1], ARGV[5]
if clock > tonumber(ARGV[3]) then return -2 end
local there = redis.call('HEXISTS', lock, owner) == 1
if redis.call('HEXISTS', lock, 'mode') == 1 then return -3 end
if there and ARGV[4] ~= '' then
  -- include lease
  if expires_at(lock) ~= tonumber(ARGV[4]) then return -1 end
end
if there and ARGV[2] ~= '0' then
  -- include writes
  allow_writes(lock)
  redis.call('HSET', lock, owner, ARGV[2])
  return 0
end
if publish ~= '' and (there or redis.call('EXISTS', lock) == 0) then
  -- include announce
  announce(publish, KEYS, ARGV[6])
end
if not there then return -1 end
redis.call('DEL', lock)
return 1
