-- read_acquire takes the read lock for an owner, enters it once more, or reads beside the write lock that the owner holds
-- itself: Redisson's read acquire, with a not-after, and the registration of lockproxy beside it.
--
-- KEYS[1] lock hash
-- KEYS[2] what the keys of this owner's holds begin with, :<i> follows
--         then those that ARGV[4] asks for: registration of a named owner (W, D)
-- ARGV[1] lease in ms
-- ARGV[2] owner, the hash field
-- ARGV[3] not-after in µs of Redis' clock, less a second: later than that nothing is done
-- ARGV[4] letters: N the owner knows of no read hold of its own, M of no write hold: one that is there was lost. A read
--         hold is counted from 1 again then, a write hold is like somebody else's;
--         O once (an owner that reads gets no second count),
--         W a named owner's hold, which is renewed, D one that is not unless it was before
-- ARGV[5] the registration
-- ARGV[6] unused
-- ARGV[7] the owner's field as a writer
-- RETURNS what read_free returns, or
--         {1, count, time in ms that this owner reads, 0, raised}  granted
--                                            raised is 1; 0 when the owner had it, once; -1 when it had, and nobody renewed it
--         {0, 0, ttl in ms, 0}               somebody else writes
--         {-2, 0, 0, 0}                      too late, nothing done
--         {-3, 0, 0, 0}                      the key holds a lock of another kind
-- ERRORS  WRONGTYPE. Nothing is changed then.

if late(ARGV[3]) then return {-2, 0, 0, 0} end
local lock, holds, lease, owner, flags = KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[2], ARGV[4]
local seen = redis.call('HMGET', lock, 'mode', owner, ARGV[7])
local mode = seen[1]
if alien(lock, mode) then return {-3, 0, 0, 0} end
if mode == 'write' and (not seen[3] or string.find(flags, 'M')) then return {0, 0, redis.call('PTTL', lock), 0} end

-- What is left of a hold that was told lost, or is over, is not entered again: it becomes one hold.
local count, left = counted(seen[2]), 0
if not string.find(flags, 'N') then left = own(holds, count) end
local held = left > 0
if not held then
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
