-- pass gives back the only hold of a plain lock in whose fair queue nobody stands, and gives the lock to one other owner: what handoff
-- does mostly, for two connections that ask for nothing besides.
--
-- KEYS[1] lock hash
-- KEYS[2] its fair queue
-- ARGV[1] owner, the hash field
-- ARGV[2] the next owner
-- ARGV[3] its lease in ms
-- ARGV[4] not-after in µs of Redis' clock
-- RETURNS 1 given back and granted for the whole lease, 0 nothing done: it is handoff that knows what is to be done, -2 too late

local call, lock = redis.call, KEYS[1]
local seen = call('HMGET', lock, 'mode', ARGV[1])
if seen[2] ~= '1' or seen[1] or call('EXISTS', KEYS[2]) == 1 then return 0 end
local time = call('TIME')
if (time[1] + 1) * 1000000 - ARGV[4] > 0 and time[1] * 1000000 + time[2] - ARGV[4] > 0 then return -2 end
call('DEL', lock)
call('HSET', lock, ARGV[2], '1')
call('PEXPIRE', lock, ARGV[3])
return 1
