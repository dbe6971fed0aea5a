-- extend sets the lease of one owner's hold anew: the verb RENEW.
--
-- KEYS[1] lock hash
-- KEYS[2] registration of the owner, when ARGV[4] asks for it
-- ARGV[1] lease in ms
-- ARGV[2] owner, the hash field
-- ARGV[3] not-after in µs of Redis' clock
-- ARGV[4] letters: K keep a longer TTL, W write the registration, D delete it
-- ARGV[5] the registration
-- RETURNS {1, count, ttl in ms} done, {-1, 0, 0} the owner does not hold it, {-2, 0, 0} too late, {-3, 0, 0} a lock of another kind
-- ERRORS  WRONGTYPE. Nothing is changed then.

local time = redis.call('TIME')
if time[1] * 1000000 + time[2] > tonumber(ARGV[3]) then return {-2, 0, 0} end

local lock, lease, flags = KEYS[1], tonumber(ARGV[1]), ARGV[4]
local seen = redis.call('HMGET', lock, 'mode', ARGV[2])
if seen[1] then return {-3, 0, 0} end
if not seen[2] then return {-1, 0, 0} end

local ttl = redis.call('PTTL', lock)
if not (string.find(flags, 'K') and ttl >= lease) then
  redis.call('PEXPIRE', lock, lease)
  ttl = lease
end
if string.find(flags, 'W') then
  redis.call('SET', KEYS[2], ARGV[5], 'PX', ttl)
elseif string.find(flags, 'D') then
  redis.call('DEL', KEYS[2])
end
return {1, tonumber(seen[2]) or 1, ttl}
