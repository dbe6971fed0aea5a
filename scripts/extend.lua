-- extend sets the lease of one owner's hold anew: the verb RENEW.
--
-- KEYS[1] lock hash
-- KEYS[2] registration of the owner, when ARGV[4] asks for it
-- ARGV[1] lease in ms
-- ARGV[2] owner, the hash field
-- ARGV[3] not-after in µs of Redis' clock
-- ARGV[4] letters: K keep a longer TTL, W write the registration, D delete it
-- ARGV[5] the new registration
-- ARGV[6] the registration this proxy knows of: deleted; another one is emptied, which tells its proxy that the hold has ended
-- RETURNS {1, count, ttl in ms} done, {-1, 0, 0} the owner does not hold it, {-1, 1, 0} it ended through another connection, {-2, 0, 0} too late, {-3, 0 or 1, 0} a lock of another kind, and the same of this owner's hold
-- ERRORS  WRONGTYPE. Nothing is changed then.

local time = redis.call('TIME')
if time[1] * 1000000 + time[2] > tonumber(ARGV[3]) then return {-2, 0, 0} end

local lock, lease, flags = KEYS[1], tonumber(ARGV[1]), ARGV[4]
local seen = redis.call('HMGET', lock, 'mode', ARGV[2])
if seen[1] or not seen[2] then
  local code = seen[1] and -3 or -1
  local registered = KEYS[2] and redis.pcall('GET', KEYS[2])
  if type(registered) == 'string' and registered ~= ARGV[6] and registered ~= ARGV[6] .. '+' then return {code, 1, 0} end
  return {code, 0, 0}
end

local ttl = redis.call('PTTL', lock)
if not (string.find(flags, 'K') and ttl >= lease) then
  redis.call('PEXPIRE', lock, lease)
  ttl = lease
else
  allow_writes(lock)
end
if string.find(flags, 'W') then
  local present = redis.pcall('GET', KEYS[2])
  local new = ARGV[5]
  if present and present ~= new then new = ARGV[5] .. '+' end
  redis.call('SET', KEYS[2], new, 'PX', ttl)
elseif string.find(flags, 'D') then
  if ARGV[6] ~= '' and redis.pcall('GET', KEYS[2]) == ARGV[6] then
    redis.call('DEL', KEYS[2])
  else
    redis.call('SET', KEYS[2], '', 'XX', 'KEEPTTL')
  end
end
return {1, tonumber(seen[2]) or 1, ttl}
