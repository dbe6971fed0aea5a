-- limit_force frees all places of a lock that several may hold, whoever has them.
--
-- KEYS    those of limit_acquire
-- ARGV    those of force
-- RETURNS 1 freed, 0 nothing was held, -2 too late, -3 the key holds a lock of another kind
-- ERRORS  WRONGTYPE. Nothing is changed then.

-- include clock limit

local key = KEYS[1]
if clock > tonumber(ARGV[2]) then return -2 end
local free, ends = redis.pcall('GETRANGE', key, '0', '0'), ends_of(key)
if type(free) == 'table' then return other_kind(key, free) end
local many, left = redis.call('ZCARD', ends), redis.call('PTTL', key)
local held = redis.call('ZCOUNT', ends, '(' .. now, '+inf')
redis.call('DEL', ends)
free = left ~= -2 and redis.pcall('INCRBY', key, many)
announce_places(ARGV[1], KEYS, free)
leave_places(ARGV[1], KEYS, ends, left)
return held > 0 and 1 or 0
