-- look reads what Redis has of one owner's hold, on either side.
--
-- KEYS[1] lock hash
-- ARGV[1] owner of a plain lock, the hash field
-- ARGV[2] its field as a reader; as a writer :write follows
-- ARGV[3] prefix of the keys of all read holds
-- RETURNS {Redis' clock in µs as a string, 1 if the owner has the plain lock, 1 if it writes, 1 if it reads, ttl in ms of the lock,
--         for how many ms it reads}

-- include rw

local time, lock = redis.call('TIME'), KEYS[1]
local out = {time[1] .. string.format('%06d', time[2]), 0, 0, 0, redis.call('PTTL', lock), 0}
local known, mode, writes, _, left = pcall(look_at, lock, ARGV[3], ARGV[2])
if not known then return out end
if mode == 'other' and redis.call('HEXISTS', lock, 'mode') == 0 then out[2] = redis.call('HEXISTS', lock, ARGV[1]) end
out[3], out[4], out[6] = writes and 1 or 0, left > 0 and 1 or 0, left
return out
