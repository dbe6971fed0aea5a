-- write_extend sets the lease of one owner's write hold anew, but not to less than its own read holds have: the verb RENEW.
--
-- KEYS[1] lock hash
-- KEYS[2] registration of a named owner, when ARGV[4] asks for it
-- ARGV[1] lease in ms
-- ARGV[2] OWNER:write, the hash field
-- ARGV[3] not-after in µs of Redis' clock, less a second
-- ARGV[4] letters: K keep a longer TTL, W a named owner's hold, R do nothing when there is a registration, neither ARGV[5] nor ARGV[6]: the
--         owner is back through another connection
-- ARGV[5] the new registration, '' = none
-- ARGV[6] the registration this proxy knows of
-- ARGV[7] the owner's field as a reader: nobody else reads beside a writer
-- ARGV[8] what the keys of read holds begin with, before the owner
-- RETURNS {1, count, ttl in ms} done, {-1, 0, 0} the owner does not write, {-1, 1, 0} it ended through another connection,
--         {-2, 0, 0} too late, {0, 0, 0} letter R, {-3, 0, 0} a lock of another kind
-- ERRORS  WRONGTYPE. Nothing is changed then.

if late(ARGV[3]) then return {-2, 0, 0} end
local lock, lease, flags = KEYS[1], tonumber(ARGV[1]), ARGV[4]
local watch_key = string.find(flags, 'W') and KEYS[2]
local seen = redis.call('HMGET', lock, 'mode', ARGV[2], ARGV[7])
if alien(lock, seen[1]) then return {-3, 0, 0} end
if seen[1] ~= 'write' or not seen[2] then return {-1, ended(watch_key), 0} end
if overruled(flags, watch_key, ARGV[5], ARGV[6]) then return {0, 0, 0} end

local ttl
allow_writes(lock)
if string.find(flags, 'K') then
  ttl = outlast(lock, lease)
else
  ttl = math.max(lease, own(ARGV[8] .. ':' .. ARGV[7] .. ':rwlock_timeout', counted(seen[3])))
  redis.call('PEXPIRE', lock, ttl)
end
if watch_key then rename(watch_key, ARGV[5], ttl, ARGV[6]) end
return {1, math.max(counted(seen[2]), 1), ttl}
