-- rw_force frees a read/write lock whoever holds it: Redisson's forceUnlock of its two sides, which also publishes. It tells those
-- that wait also when nobody holds the lock.
--
-- KEYS[1] lock hash
-- KEYS[2] channel of the lock
-- ARGV[1] PUBLISH, SPUBLISH, or BOTH
-- ARGV[2] not-after in µs of Redis' clock, less a second
-- ARGV[3] read or write: only in that mode, empty: in any
-- ARGV[4] what the keys of read holds begin with, before the owner
-- RETURNS 1 freed, 0 nothing was held, -2 too late, -3 the key holds a lock of another kind
-- ERRORS  WRONGTYPE. Nothing is changed then.

if late(ARGV[2]) then return -2 end
local lock = KEYS[1]
local mode = redis.call('HGET', lock, 'mode')
if alien(lock, mode) then return -3 end
if not mode then tell(ARGV[1], KEYS[2], '1') end
if not mode or ARGV[3] ~= '' and ARGV[3] ~= mode then return 0 end
local all = redis.call('HLEN', lock) <= looks and redis.call('HGETALL', lock) or {} -- keys that are left run out
tell(ARGV[1], KEYS[2], mode == 'write' and '1' or '0')
redis.call('DEL', lock)
for i = 1, #all, 2 do
  forget(ARGV[4] .. ':' .. all[i] .. ':rwlock_timeout', counted(all[i + 1]), 1)
end
return 1
