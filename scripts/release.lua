-- release gives back one hold of the plain lock KEYS[1], or all holds of the owner: Redisson's RLock unlock with a not-after.
-- It publishes before it deletes, so that an account that may not publish changes nothing; to the first in the fair queue, too,
-- which in Redisson hears nothing else. An owner that comes too late, to a lock that nobody holds any more, has them told as well.
--
-- KEYS[1] lock hash
-- KEYS[2] its fair queue
-- then, when ARGV[4] asks for them: registration of a named owner (W)
-- ARGV[1] owner, the hash field
-- ARGV[2] PUBLISH, SPUBLISH, or BOTH
-- ARGV[3] not-after in µs of Redis' clock, less a second
-- ARGV[4] letters: A all holds of the owner, W end the registration when the lock is free,
--         Q publish nothing: the lock goes to somebody else in the same step,
--         R do nothing when the registration is not the one this proxy knows of: the owner is back through another connection,
--         X nor when it has a plus: another LOCK counts on the hold
-- ARGV[5] with W: the registration this proxy knows of: deleted; another one is emptied, which tells its proxy that the hold has ended
-- RETURNS what release_last returns, or
--         {1, 0}      the lock is free of this owner
--         {0, count}  the owner still holds it
--         {-1, 0}     the owner does not hold it
--         {-1, 1}     nor that, and its registration says that it ended through another connection
--         {-2, 0}     too late, nothing done
--         {-3, 0}     the key holds a lock of another kind, {-3, 1} and this owner's ended through another connection
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
