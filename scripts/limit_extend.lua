-- limit_extend is extend for a lock that several may hold.
--
-- KEYS    those of limit_acquire
-- ARGV    those of extend
-- RETURNS what extend returns
-- ERRORS  WRONGTYPE. Nothing is changed then.

-- include clock limit lease

local key, owner, how = KEYS[1], ARGV[1], ARGV[4]
if clock > tonumber(ARGV[3]) then return {-2, 0, 0} end
local other = other_kind(key)
if other then return other == -3 and {-3, 0, 0} or other end
local was = place_of(key, owner)
if not was or how == 'keep' and was ~= tonumber(ARGV[5]) then return {-1, 0, 0} end
redis.call('ZREM', ends_of(key), '') -- as allow_writes does, for a full Redis
if how == 'set' then
  set_end(key, owner, now + tonumber(ARGV[2]))
  return {1, tonumber(ARGV[2]), 0}
end
local at, lasts = lease_end(how, tonumber(ARGV[2]), was)
set_end(key, owner, at)
return {1, lasts, at}
