-- extend sets a new lease for one owner's hold, which may be shorter: the verb RENEW.
--
-- KEYS[1] lock hash
-- KEYS[2] with W: registration of the named owner
-- ARGV[1] lease in ms
-- ARGV[2] owner, the hash field
-- ARGV[3] not-after minus one second, in µs of Redis' clock (see late.lua)
-- ARGV[4] letters:
--         K  keep a TTL that is longer
--         W  a named owner's hold
--         R  do nothing if the owner may since have sent a command through another connection: there is a registration whose name
--            is neither ARGV[5] nor ARGV[6], or one of these with a + while the hold would be shortened
-- ARGV[5] the new registration, '' = none
-- ARGV[6] the registration that this proxy knows
-- RETURNS {1, count, ttl in ms} done
--         {0, 0, 0}      nothing was done, because of R
--         {-1, ended, 0} the owner does not hold the lock; ended is 1 if it gave it back through another connection, else 0
--         {-2, 0, 0}     too late, nothing done
--         {-3, ended, 0} the key holds a lock of another kind; ended as above
-- ERRORS  WRONGTYPE. Nothing is changed then.

if late(ARGV[3]) then return {-2, 0, 0} end

local lock, lease, flags = KEYS[1], tonumber(ARGV[1]), ARGV[4]
local watch_key = string.find(flags, 'W') and KEYS[2]
local seen = redis.call('HMGET', lock, 'mode', ARGV[2])
if seen[1] or not seen[2] then
  return {seen[1] and -3 or -1, ended(watch_key), 0}
end
local ttl, keep = redis.call('PTTL', lock), string.find(flags, 'K')
if overruled(flags, watch_key, ARGV[5], ARGV[6], not keep and ttl > lease) then return {0, 0, 0} end

if not (keep and ttl >= lease) then
  redis.call('PEXPIRE', lock, lease)
  ttl = lease
else
  allow_writes(lock)
end
if watch_key then rename(watch_key, ARGV[5], ttl, ARGV[6]) end
return {1, tonumber(seen[2]) or 1, ttl}
