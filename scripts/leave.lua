-- leave takes a waiter out of a fair queue: Redisson's acquireFailed. If the waiter was the first and the lock is free, the next one is
-- woken.
--
-- KEYS[1] lock hash
-- KEYS[2] its fair queue
-- ARGV[1] not-after in µs of Redis' clock
-- ARGV[2] PUBLISH, SPUBLISH, or BOTH
-- ARGV[3] owner
-- RETURNS 1 it waited, 0 it did not, -2 too late, nothing done
-- ERRORS  WRONGTYPE. Nothing is changed then.

-- include clock announce queue

if clock > tonumber(ARGV[1]) then return -2 end
local queue, owner = KEYS[2], ARGV[3]
local turn = redis.call('LINDEX', queue, 0) == owner
local waited = fair_queue(queue).quit(owner)
if turn and redis.call('EXISTS', KEYS[1]) == 0 then announce(ARGV[2], KEYS) end
return waited
