-- raise brings a fencing token up to what other nodes gave: the second round of a quorum's FENCE. It never lowers one.
--
-- KEYS[1] fencing token
-- ARGV[1] the token, below 2^53
-- ARGV[2] not-after in µs of Redis' clock, less a second
-- ARGV[3] TTL of the fencing token in ms, 0 = none
-- RETURNS {1} it is that much, or more; {-2} too late, nothing done
-- ERRORS  WRONGTYPE. Nothing is changed then.

if late(ARGV[2]) then return {-2} end
local last = tonumber(string.match(redis.call('GET', KEYS[1]) or '0', '^%d+$'))
if last and last >= tonumber(ARGV[1]) then return {1} end
if tonumber(ARGV[3]) > 0 then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
else
  redis.call('SET', KEYS[1], ARGV[1])
end
return {1}
