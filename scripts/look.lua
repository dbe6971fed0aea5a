-- look reads what Redis has of one owner's plain lock or write lock, to find out whether a script ran whose reply was lost.
--
-- KEYS[1] lock hash
-- KEYS[2] fencing token
-- KEYS[3] registration, of a named owner
-- ARGV[1] owner, or OWNER:write
-- RETURNS {Redis' clock in µs, count (0 = not held), ttl in ms, token or 0, registration or nil}, the clock as a string

local time = redis.call('TIME')
local clock = time[1] .. string.format('%06d', time[2])
local seen = redis.pcall('HMGET', KEYS[1], 'mode', ARGV[1])
local count = not seen.err and (not seen[1] or string.sub(ARGV[1], -6) == ':write') and seen[2]
local registered = KEYS[3] and redis.pcall('GET', KEYS[3])
local token = redis.pcall('GET', KEYS[2])
return {
  clock,
  type(count) == 'string' and tonumber(count) or 0,
  redis.call('PTTL', KEYS[1]),
  type(token) == 'string' and tonumber(token) or 0,
  type(registered) == 'string' and registered,
}
