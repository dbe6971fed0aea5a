-- limit_force frees all places of a lock that several may hold, whoever has them.
--
-- KEYS    those of limit_acquire
-- ARGV    those of force
-- RETURNS 1 freed, 0 nothing was held, -2 too late, -3 the key holds a lock of another kind
-- ERRORS  WRONGTYPE. Nothing is changed then.

-- include clock limit

local key = KEYS[1]
if clock > tonumber(ARGV[2]) then return -2 end
local other = other_kind(key)
if other then return other end
local ends = ends_of(key)
local many, left = redis.call('ZCARD', ends), redis.call('PTTL', key)
redis.call('DEL', ends)
if left ~= -2 then redis.call('INCRBY', key, many) end
announce_places(ARGV[1], KEYS)
leave_places(ARGV[1], KEYS, left)
return many > 0 and 1 or 0
