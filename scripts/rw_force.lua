-- rw_force frees a read/write lock, whoever holds it: Redisson's forceUnlock of both sides. Unlike that, it wakes waiters also when nobody
-- holds the lock.
--
-- KEYS[1] lock hash
-- KEYS[2] channel of the lock
-- ARGV[1] PUBLISH, SPUBLISH, or BOTH
-- ARGV[2] not-after in µs of Redis' clock
-- ARGV[3] read or write: free it in that mode only; '' = in any mode
-- ARGV[4] prefix of the keys of all read holds, before the owner
-- RETURNS 1 freed, 0 nothing was held, -2 too late, -3 the key holds a lock of another kind
-- ERRORS  WRONGTYPE. Nothing is changed then.

-- include clock wake rw rw_reads

if clock > tonumber(ARGV[2]) then return -2 end
local lock = KEYS[1]
local mode = mode_of(lock)
if mode == 'other' then return -3 end
if mode == 'free' then wake(ARGV[1], KEYS, KEYS[2], '1') end
if mode == 'free' or ARGV[3] ~= '' and ARGV[3] ~= mode then return 0 end
local all = redis.call('HLEN', lock) <= looks and redis.call('HKEYS', lock) or {} -- keys of read holds that are left expire
local counts = {}
for i, owner in ipairs(all) do counts[i] = counted(text(lock, owner)) end
wake(ARGV[1], KEYS, KEYS[2], mode == 'write' and '1' or '0')
redis.call('DEL', lock)
for i, owner in ipairs(all) do forget(ARGV[4], owner, counts[i], 1) end
return 1
