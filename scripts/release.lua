-- release gives back one hold of the plain lock KEYS[1], or all holds of the owner: Redisson's RLock unlock with a not-after.
-- It publishes before it deletes, so that nothing is changed if the service account may not publish. The first in the fair queue gets a
-- message on its own channel, too, the only one to which Redisson's waiters there listen. As Redisson's RFairLock, it publishes also when
-- nobody holds the lock any more, since no message has said that the lease had ended.
--
-- KEYS[1] lock hash
-- KEYS[2] its fair queue
-- KEYS[3] with W: registration of the named owner
-- ARGV[1] owner, the hash field
-- ARGV[2] PUBLISH, SPUBLISH, or BOTH
-- ARGV[3] not-after minus one second, in µs of Redis' clock (see late.lua)
-- ARGV[4] letters:
--         A  all holds of the owner
--         W  a named owner's hold: its registration ends with it
--         Q  publish nothing: a waiter gets the lock in the same script (handoff), or it was never granted (quorum)
--         X  do nothing unless the registration has the name ARGV[5] and no +: another name says that the owner may have taken the lock anew through
--            another connection, and a + that another LOCK relies on the hold, too
-- ARGV[5] with W: the registration that this proxy knows. If Redis has the same it is deleted; another one is emptied, which tells its
--         proxy that the hold has ended
-- RETURNS what release_short returns, or
--         {1, 0}      the owner no longer holds the lock
--         {0, count}  it still does
--         {-1, 0}     it does not hold the lock
--         {-1, 1}     it gave the lock back through another connection, or X kept the script from doing anything
--         {-2, 0}     too late, nothing done
--         {-3, ended} the key holds a lock of another kind; ended is 1 if the owner gave its own back through another connection, else 0
-- ERRORS  WRONGTYPE. Nothing is changed then.

local past, now = late(ARGV[3])
if past then return {-2, 0} end

local lock, owner, flags = KEYS[1], ARGV[1], ARGV[4]
local seen = redis.call('HMGET', lock, 'mode', owner)
local watch_key = string.find(flags, 'W') and KEYS[3]

if seen[1] then return {-3, ended(watch_key)} end
if not seen[2] then
  if not string.find(flags, 'Q') and redis.call('EXISTS', lock) == 0 then announce(ARGV[2], KEYS[2], now) end
  return {-1, ended(watch_key)}
end
if foreign(flags, watch_key, ARGV[5]) then return {-1, 1} end

local left = 0
if not string.find(flags, 'A') then left = (tonumber(seen[2]) or 1) - 1 end
if left > 0 then
  allow_writes(lock)
  redis.call('HINCRBY', lock, owner, -1)
else
  left = 0
  if not string.find(flags, 'Q') then announce(ARGV[2], KEYS[2], now) end
  redis.call('DEL', lock)
  if watch_key then unregister(watch_key, ARGV[5]) end
end
if left > 0 then return {0, left} end
return {1, 0}
