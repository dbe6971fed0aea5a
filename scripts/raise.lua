-- raise brings a fencing token on a node of a quorum up to the highest that the nodes proposed: the second round of FENCE. It never lowers
-- a token.
--
-- KEYS[1] fencing token
-- ARGV[1] the token, below 2^53
-- ARGV[2] not-after in µs of Redis' clock; after it nothing is done
-- RETURNS {1} the node's token is that high now, or higher; {-2} too late, nothing done
-- ERRORS  WRONGTYPE. Nothing is changed then.

-- include clock

if clock > tonumber(ARGV[2]) then return {-2} end
local last = tonumber(string.match(redis.call('GET', KEYS[1]) or '0', '^%d+$'))
if not last or last < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end
return {1}
