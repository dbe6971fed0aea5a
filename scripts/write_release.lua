-- write_release gives back one write hold, or all of the owner: Redisson's write unlock with a not-after. An owner that also reads keeps
-- its read lock, which lasts as long as its read holds. Unlike Redisson's, the script publishes then, too, for the readers that wait, and
-- leaves the lease as it is when it gives back one of several holds.
-- It publishes before it deletes, so that nothing is changed if the service account may not publish. Like Redisson's it publishes also
-- when the lock is gone already, since no message has said that its lease had ended.
--
-- KEYS[1] lock hash
-- KEYS[2] channel of the lock
-- KEYS[3] with W: registration of the named owner
-- ARGV[1] OWNER:write, the hash field
-- ARGV[2] PUBLISH, SPUBLISH, or BOTH
-- ARGV[3] not-after minus one second, in µs of Redis' clock (see late.lua)
-- ARGV[4] letters:
--         A  all write holds of the owner
--         W  a named owner's hold: its registration ends with the last write hold
--         Q  publish nothing when this frees the lock: a waiter gets it in the same script (handoff), or it was never granted (quorum)
--         X  do nothing unless the registration has the name ARGV[5] and no +: another name says that the owner may have taken the lock anew through
--            another connection, and a + that another LOCK relies on the hold, too
-- ARGV[5] the registration that this proxy knows. If Redis has the same it is deleted; another one is emptied, which tells its
--         proxy that the hold has ended
-- ARGV[6] the owner's field as a reader: nobody else reads beside a writer
-- ARGV[7] prefix of the keys of all read holds, before the owner
-- RETURNS what write_release_short returns, or
--         {1, 0}      the owner no longer writes
--         {0, count}  it still does
--         {-1, 0}     it does not write
--         {-1, 1}     it gave the hold back through another connection, or X kept the script from doing anything
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
