-- read_look reads what Redis has of one owner's read lock, to find out whether a script ran whose reply was lost. Expired holds do not
-- count.
--
-- KEYS[1] lock hash
-- KEYS[2] prefix of the keys of this owner's read holds, :<i> follows
-- KEYS[3] unused
-- KEYS[4] registration, of a named owner
-- ARGV[1] owner, the hash field
-- RETURNS {Redis' clock in µs, count (0 = not held), time in ms that this owner reads, 0, registration or nil}, the clock as a string

local time = redis.call('TIME')
local clock = time[1] .. string.format('%06d', time[2])
local seen = redis.pcall('HMGET', KEYS[1], 'mode', ARGV[1])
local count = 0
if not seen.err and seen[1] then count = counted(seen[2]) end
local left = own(KEYS[2], count)
if left == 0 then count = 0 end
local registered = KEYS[4] and redis.pcall('GET', KEYS[4])
return {clock, count, left, 0, type(registered) == 'string' and registered}
