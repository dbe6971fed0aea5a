-- write_extend sets a new lease for one owner's write hold, which may be shorter: the verb RENEW. The lock lasts at least as long as the
-- owner's own read holds.
--
-- KEYS[1] lock hash
-- KEYS[2] with W: registration of the named owner
-- ARGV[1] lease in ms
-- ARGV[2] OWNER:write, the hash field
-- ARGV[3] not-after minus one second, in µs of Redis' clock (see late.lua)
-- ARGV[4] letters:
--         K  keep a TTL that is longer
--         W  a named owner's hold
--         R  do nothing if the owner may since have sent a command through another connection: there is a registration whose name
--            is neither ARGV[5] nor ARGV[6], or one of these with a + while the hold would be shortened
-- ARGV[5] the new registration, '' = none
-- ARGV[6] the registration that this proxy knows
-- ARGV[7] the owner's field as a reader: nobody else reads beside a writer
-- ARGV[8] prefix of the keys of all read holds, before the owner
-- RETURNS {1, count, ttl in ms} done
--         {0, 0, 0}      nothing was done, because of R
--         {-1, ended, 0} the owner does not write; ended is 1 if it gave the lock back through another connection, else 0
--         {-2, 0, 0}     too late, nothing done
--         {-3, 0, 0}     the key holds a lock of another kind
-- ERRORS  WRONGTYPE. Nothing is changed then.

if late(ARGV[3]) then return {-2, 0, 0} end
local lock, lease, flags = KEYS[1], tonumber(ARGV[1]), ARGV[4]
local watch_key = string.find(flags, 'W') and KEYS[2]
local seen = redis.call('HMGET', lock, 'mode', ARGV[2], ARGV[7])
if alien(lock, seen[1]) then return {-3, 0, 0} end
if seen[1] ~= 'write' or not seen[2] then return {-1, ended(watch_key), 0} end
local keep, ttl = string.find(flags, 'K'), nil
if overruled(flags, watch_key, ARGV[5], ARGV[6], not keep and redis.call('PTTL', lock) > lease) then return {0, 0, 0} end

allow_writes(lock)
if keep then
  ttl = outlast(lock, lease)
else
  ttl = math.max(lease, own(ARGV[8] .. ':' .. ARGV[7] .. ':rwlock_timeout', counted(seen[3])))
  redis.call('PEXPIRE', lock, ttl)
end
if watch_key then rename(watch_key, ARGV[5], ttl, ARGV[6]) end
return {1, math.max(counted(seen[2]), 1), ttl}
