-- extend sets the lease of one owner's hold anew: the verb RENEW.
--
-- KEYS[1] lock hash
-- KEYS[2] registration of a named owner, when ARGV[4] asks for it
-- ARGV[1] lease in ms
-- ARGV[2] owner, the hash field
-- ARGV[3] not-after in µs of Redis' clock, less a second
-- ARGV[4] letters: K keep a longer TTL, W a named owner's hold, R do nothing when there is a registration, neither ARGV[5] nor ARGV[6]: the
--         owner is back through another connection
-- ARGV[5] the new registration, '' = none
-- ARGV[6] the registration this proxy knows of
-- RETURNS {1, count, ttl in ms} done, {-1, 0, 0} the owner does not hold it, {-1, 1, 0} it ended through another connection,
--         {-2, 0, 0} too late, {0, 0, 0} letter R, {-3, 0 or 1, 0} a lock of another kind, and the same of this owner's hold
-- ERRORS  WRONGTYPE. Nothing is changed then.

if late(ARGV[3]) then return {-2, 0, 0} end

local lock, lease, flags = KEYS[1], tonumber(ARGV[1]), ARGV[4]
local watch_key = string.find(flags, 'W') and KEYS[2]
local seen = redis.call('HMGET', lock, 'mode', ARGV[2])
if seen[1] or not seen[2] then
  return {seen[1] and -3 or -1, ended(watch_key), 0}
end
if overruled(flags, watch_key, ARGV[5], ARGV[6]) then return {0, 0, 0} end

local ttl = redis.call('PTTL', lock)
if not (string.find(flags, 'K') and ttl >= lease) then
  redis.call('PEXPIRE', lock, lease)
  ttl = lease
else
  allow_writes(lock)
end
if watch_key then rename(watch_key, ARGV[5], ttl, ARGV[6]) end
return {1, tonumber(seen[2]) or 1, ttl}
