-- limit_release gives back an owner's place of a lock that several may hold: Redisson's RPermitExpirableSemaphore tryRelease, with a not-after.
-- With the last place both keys go, unless Redisson's trySetPermits has made them.
--
-- KEYS    those of limit_acquire
-- ARGV    those of release
-- RETURNS what release returns
-- ERRORS  WRONGTYPE. Nothing is changed then.

-- include clock limit

local key, owner, publish = KEYS[1], ARGV[1], ARGV[5]
if clock > tonumber(ARGV[3]) then return -2 end
local ends = ends_of(key)
local was = tonumber(redis.call('ZSCORE', ends, owner) or nil)
if not was then
  local free = redis.pcall('GETRANGE', key, '0', '0')
  return type(free) == 'table' and other_kind(key, free) or -1
end
local there = was > now
if there and ARGV[4] ~= '' and was ~= tonumber(ARGV[4]) then return -1 end
if there and ARGV[2] ~= '0' then return 0 end
redis.call('ZREM', ends, owner)
local left, free = redis.call('PTTL', key), nil
if left ~= -2 then free = redis.pcall('INCRBY', key, 1) end
if publish ~= '' then
  announce_places(publish, KEYS, free, ARGV[6])
  leave_places(publish, KEYS, ends, left, ARGV[6])
end
return there and 1 or -1
