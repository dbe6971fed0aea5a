-- leave takes a waiter out of a fair queue, as Redisson's acquireFailed. When it was its turn, whose turn it is now is told.
--
-- KEYS[1] lock hash
-- KEYS[2] its fair queue
-- ARGV[1] not-after in µs of Redis' clock
-- ARGV[2] PUBLISH, SPUBLISH, or BOTH
-- ARGV[3] owner
-- RETURNS 1 it waited, 0 it did not, -2 too late, nothing done
-- ERRORS  WRONGTYPE. Nothing is changed then.

local time = redis.call('TIME')
if time[1] * 1000000 + time[2] > tonumber(ARGV[1]) then return -2 end
local queue, owner = KEYS[2], ARGV[3]
local turn = redis.call('LINDEX', queue, 0) == owner
local waited = mind(queue).quit(owner)
if turn and redis.call('EXISTS', KEYS[1]) == 0 then announce(ARGV[2], queue) end
return waited
