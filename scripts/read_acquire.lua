-- read_acquire takes the read lock for an owner, or re-enters it. The owner that holds the write lock may take it as well. This is
-- Redisson's read acquire, plus a not-after and lockproxy's registration.
--
-- KEYS[1] lock hash
-- KEYS[2] prefix of the keys of this owner's read holds, :<i> follows
--         then, with W or D: registration of the named owner
-- ARGV[1] lease in ms
-- ARGV[2] owner, the hash field
-- ARGV[3] not-after minus one second, in µs of Redis' clock (see late.lua); after it nothing is done
-- ARGV[4] letters:
--         N  the proxy knows of no read hold of this owner: one that is there was lost, and its count starts again at 1
--         M  the proxy knows of no write hold of this owner: one that is there was lost, and counts as somebody else's
--         O  do not nest: an owner that reads keeps its count
--         W  a named owner's hold, which the watchdog renews
--         D  a named owner's hold, which the watchdog does not renew unless it did before
-- ARGV[5] the registration
-- ARGV[6] unused
-- ARGV[7] the owner's field as a writer
-- RETURNS what read_acquire_short returns, or
--         {1, count, time in ms that this owner reads, 0, raised}  granted; raised is
--                                            1   a new hold, or the owner has re-entered its hold
--                                            0   letter O: the owner held the lock already
--                                            -1  as 0, but until now no watchdog renewed the hold, and this LOCK wants it renewed
--         {0, 0, ttl in ms, 0}               somebody else writes
--         {-2, 0, 0, 0}                      too late, nothing done
--         {-3, 0, 0, 0}                      the key holds a lock of another kind
--         {-6, 0, 0, 0}                      without N, O, W and D: the hold that was to be re-entered has gone, nothing done (see acquire)
-- ERRORS  WRONGTYPE. Nothing is changed then.

if late(ARGV[3]) then return {-2, 0, 0, 0} end
local lock, holds, lease, owner, flags = KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[2], ARGV[4]
local seen = redis.call('HMGET', lock, 'mode', owner, ARGV[7])
local mode = seen[1]
if alien(lock, mode) then return {-3, 0, 0, 0} end
if mode == 'write' and (not seen[3] or string.find(flags, 'M')) then return {0, 0, redis.call('PTTL', lock), 0} end

-- A hold that the proxy does not know (N), or that has expired, is not re-entered: the count starts again at 1.
local count, left = counted(seen[2]), 0
if not string.find(flags, 'N') then left = own(holds, count) end
local held = left > 0
if not held then
  if not string.find(flags, '[NOWD]') then return {-6, 0, 0, 0} end
  forget(holds, count, 2)
  count = 0
end

local once = held and string.find(flags, 'O')
if once then
  allow_writes(lock)
else
  count = count + 1
  if not mode then redis.call('HSET', lock, 'mode', 'read') end
  redis.call('HSET', lock, owner, string.format('%.0f', count))
end
local hold = hold_key(holds, count)
if not once or redis.call('PTTL', hold) < lease then redis.call('SET', hold, '1', 'PX', lease) end
left = math.max(left, lease)
outlast(lock, lease)

local unrenewed = string.find(flags, '[WD]') and enrol(KEYS[3], ARGV[5], left, held, string.find(flags, 'W'))
return {1, count, left, 0, once and (unrenewed and -1 or 0) or 1}
