-- rw_pass does the common case of rw_handoff with fewer KEYS and ARGV: it gives back the only hold of a read/write lock, and grants the
-- write lock to one other owner. Both are connections without options.
--
-- KEYS[1] lock hash
-- KEYS[2] if a read hold is given back: prefix of the keys of the owner's read holds, :<i> follows
-- ARGV[1] owner, the hash field
-- ARGV[2] the owner's field on the other side
-- ARGV[3] the next owner, OWNER:write
-- ARGV[4] the next owner's lease in ms
-- ARGV[5] not-after minus one second, in µs of Redis' clock (see late.lua)
-- ARGV[6] read or write: the side that is given back
-- RETURNS 1 given back and granted for the whole lease, 0 nothing was done, and rw_handoff must be run, -2 too late, nothing done

local call, lock, hold = redis.call, KEYS[1], nil
local seen = call('HMGET', lock, 'mode', ARGV[1], ARGV[2])
if seen[1] ~= ARGV[6] or seen[2] ~= '1' or seen[3] then return 0 end
if ARGV[6] == 'read' then
  hold = KEYS[2] .. ':1'
  if call('HLEN', lock) ~= 2 or call('PTTL', hold) <= 0 then return 0 end
end
local time = call('TIME')
if time[1] >= ARGV[5] and time[1] * 1000000 + time[2] - ARGV[5] > 1000000 then return -2 end
if hold then call('DEL', lock, hold) else call('DEL', lock) end
call('HSET', lock, 'mode', 'write', ARGV[3], '1')
call('PEXPIRE', lock, ARGV[4])
return 1
