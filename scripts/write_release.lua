-- write_release gives back one write hold, or all of the owner: Redisson's write unlock with a not-after. An owner that still
-- reads is left with its read lock, which lasts as long as its read holds. Unlike Redisson's this is published too, for the
-- readers that wait, and giving back one of several holds leaves the lease as it is.
-- It publishes before it deletes, so that an account that may not publish changes nothing; and, as Redisson's, when the lock has
-- gone by itself.
--
-- KEYS[1] lock hash
-- KEYS[2] channel of the lock
-- then, when ARGV[4] asks for them: registration of a named owner (W)
-- ARGV[1] OWNER:write, the hash field
-- ARGV[2] PUBLISH, SPUBLISH, or BOTH
-- ARGV[3] not-after in µs of Redis' clock, less a second
-- ARGV[4] letters: A all write holds of the owner, W end the registration with the last of them,
--         Q publish nothing when the lock goes altogether: it goes to somebody else in the same step,
--         R do nothing when the registration is not the one this proxy knows of: the owner is back through another connection,
--         X nor when it has a plus: another LOCK counts on the hold
-- ARGV[5] the registration this proxy knows of: deleted; another one is emptied, which tells its proxy that the hold has ended
-- ARGV[6] the owner's field as a reader: nobody else reads beside a writer
-- ARGV[7] what the keys of read holds begin with, before the owner
-- RETURNS what write_last returns, or
--         {1, 0}      this owner no longer writes
--         {0, count}  it still does
--         {-1, 0}     it does not write
--         {-1, 1}     nor that, and its registration says that it ended through another connection
--         {-2, 0}     too late, nothing done
--         {-3, 0}     the key holds a lock of another kind
-- ERRORS  WRONGTYPE. Nothing is changed then.

if late(ARGV[3]) then return {-2, 0} end
local lock, field, flags = KEYS[1], ARGV[1], ARGV[4]
local seen = redis.call('HMGET', lock, 'mode', field, ARGV[6])
if alien(lock, seen[1]) then return {-3, 0} end

local watch_key = string.find(flags, 'W') and KEYS[3]
if not seen[1] and not string.find(flags, 'Q') then tell(ARGV[2], KEYS[2], '1') end
if seen[1] ~= 'write' or not seen[2] then return {-1, ended(watch_key)} end
if foreign(flags, watch_key, ARGV[5]) then return {-1, 1} end

local remain = math.max(counted(seen[2]) - 1, 0)
if string.find(flags, 'A') then remain = 0 end
if remain > 0 then
  allow_writes(lock)
  redis.call('HSET', lock, field, string.format('%.0f', remain))
else
  local readers = own(ARGV[7] .. ':' .. ARGV[6] .. ':rwlock_timeout', counted(seen[3]))
  if readers > 0 or not string.find(flags, 'Q') then tell(ARGV[2], KEYS[2], '1') end
  if readers > 0 then
    redis.call('HDEL', lock, field)
    redis.call('HSET', lock, 'mode', 'read')
    redis.call('PEXPIRE', lock, readers)
  else
    redis.call('DEL', lock)
  end
  if watch_key then unregister(watch_key, ARGV[5]) end
end
if remain > 0 then return {0, remain} end
return {1, 0}
