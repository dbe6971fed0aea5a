-- read_release gives back one read hold, or all of the owner: Redisson's read unlock with a not-after. Unlike there, the lease
-- of a write lock that the owner holds stays as it is, and so does the longest lease of the read holds that remain.
-- It publishes before it deletes, so that an account that may not publish changes nothing; and, as Redisson's, when the lock has
-- gone by itself.
--
-- KEYS[1] lock hash
-- KEYS[2] what the keys of this owner's holds begin with, :<i> follows
-- KEYS[3] channel of the lock
-- then, when ARGV[4] asks for them: registration of a named owner (W)
-- ARGV[1] owner, the hash field
-- ARGV[2] PUBLISH, SPUBLISH, or BOTH
-- ARGV[3] not-after in µs of Redis' clock, less a second
-- ARGV[4] letters: A all read holds of the owner, W end the registration with the last of them,
--         Q publish nothing when the lock goes altogether: it goes to somebody else in the same step,
--         R do nothing when the registration is not the one this proxy knows of: the owner is back through another connection,
--         X nor when it has a plus: another LOCK counts on the hold
-- ARGV[5] the registration this proxy knows of: deleted; another one is emptied, which tells its proxy that the hold has ended
-- ARGV[6] the owner's field on the other side, unused
-- ARGV[7] what the keys of read holds begin with, before the owner
-- RETURNS what read_last returns, or
--         {1, 0}      this owner no longer reads
--         {0, count}  it still does
--         {-1, 0}     it does not read
--         {-1, 1}     nor that, and its registration says that it ended through another connection
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

-- When nobody reads any more, or writes, the lock goes with all that dead readers have left.
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
