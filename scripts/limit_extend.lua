-- limit_extend is extend for a lock that several may hold.
--
-- KEYS    those of limit_acquire
-- ARGV    those of extend
-- RETURNS what extend returns
-- ERRORS  WRONGTYPE. Nothing is changed then.

-- include clock limit lease

local key, owner, how = KEYS[1], ARGV[1], ARGV[4]
if clock > tonumber(ARGV[3]) then return {-2, 0, 0} end
local ends = ends_of(key)
local was = place_of(ends, owner)
if not was then
  local free = redis.pcall('GETRANGE', key, '0', '0')
  local other = type(free) == 'table' and other_kind(key, free) or -1
  return tonumber(other) and {other, 0, 0} or other
end
if how == 'keep' and was ~= tonumber(ARGV[5]) then return {-1, 0, 0} end
redis.call('ZREM', ends, '') -- as allow_writes does, for a full Redis
local at, lasts = now + tonumber(ARGV[2]), tonumber(ARGV[2])
if how ~= 'set' then at, lasts = lease_end(how, lasts, was) end
set_end(key, ends, owner, at, redis.call('PTTL', key))
return {1, lasts, how ~= 'set' and at or 0}
