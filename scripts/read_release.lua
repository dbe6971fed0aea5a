-- read_release gives back one read hold, or all of the owner: Redisson's read unlock with a not-after. Unlike Redisson's it leaves the
-- lease of a write lock that the owner holds as it is, and an owner with read holds left keeps the longest lease that it had.
-- It publishes before it deletes, so that nothing is changed if the service account may not publish. Like Redisson's it publishes also
-- when the lock is gone already, since no message has said that its lease had ended.
--
-- KEYS[1] lock hash
-- KEYS[2] prefix of the keys of this owner's read holds, :<i> follows
-- KEYS[3] channel of the lock
-- KEYS[4] with W: registration of the named owner
-- ARGV[1] owner, the hash field
-- ARGV[2] PUBLISH, SPUBLISH, or BOTH
-- ARGV[3] not-after minus one second, in µs of Redis' clock (see late.lua)
-- ARGV[4] letters:
--         A  all read holds of the owner
--         W  a named owner's hold: its registration ends with the last read hold
--         Q  publish nothing when this frees the lock: a waiter gets it in the same script (handoff), or it was never granted (quorum)
--         X  do nothing unless the registration has the name ARGV[5] and no +: another name says that the owner may have taken the lock anew through
--            another connection, and a + that another LOCK relies on the hold, too
-- ARGV[5] the registration that this proxy knows. If Redis has the same it is deleted; another one is emptied, which tells its
--         proxy that the hold has ended
-- ARGV[6] the owner's field as a writer, unused
-- ARGV[7] prefix of the keys of all read holds, before the owner
-- RETURNS what read_release_short returns, or
--         {1, 0}      the owner no longer reads
--         {0, count}  it still does
--         {-1, 0}     it does not read
--         {-1, 1}     it gave the hold back through another connection, or X kept the script from doing anything
--         {-2, 0}     too late, nothing done
--         {-3, 0}     the key holds a lock of another kind
-- ERRORS  WRONGTYPE. Nothing is changed then.

if late(ARGV[3]) then return {-2, 0} end
local lock, holds, owner, flags, prefix = KEYS[1], KEYS[2], ARGV[1], ARGV[4], ARGV[7]
local seen = redis.call('HMGET', lock, 'mode', owner)
local mode = seen[1]
if alien(lock, mode) then return {-3, 0} end

local watch_key = string.find(flags, 'W') and KEYS[4]
if foreign(flags, watch_key, ARGV[5]) then return {-1, 1} end

local count = counted(seen[2])
local left = own(holds, count)
local remain = count - 1
if left == 0 or string.find(flags, 'A') then remain = 0 end

-- When no live reader is left, and no writer, the whole hash is deleted, with what dead readers have left in it.
if seen[2] then
  local others = mode == 'read' and live(lock, prefix, owner) or 0
  if remain == 0 and others == 0 and mode == 'read' then
    if not string.find(flags, 'Q') then tell(ARGV[2], KEYS[3], '0') end
    redis.call('DEL', lock)
  else
    if remain > 0 then
      allow_writes(lock)
      redis.call('HSET', lock, owner, string.format('%.0f', remain))
      others = math.max(others, left)
    else
      redis.call('HDEL', lock, owner)
    end
    if mode == 'read' then redis.call('PEXPIRE', lock, others) end
  end
  forget(holds, count, remain + 1)
end
if left == 0 then
  if not mode and not string.find(flags, 'Q') then tell(ARGV[2], KEYS[3], '0') end
  return {-1, ended(watch_key)}
end

if remain > 0 then
  local newest = hold_key(holds, remain)
  if redis.call('PTTL', newest) < left then redis.call('SET', newest, '1', 'PX', left) end
elseif watch_key then
  unregister(watch_key, ARGV[5])
end
if remain > 0 then return {0, remain} end
return {1, 0}
