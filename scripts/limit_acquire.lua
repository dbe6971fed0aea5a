-- limit_acquire takes one of the places of a lock that so many may hold, or the one that the owner has already: Redisson's
-- RPermitExpirableSemaphore tryAcquire, with a limit that comes with each request, and a not-after.
--
-- KEYS[1] how many places are free
-- KEYS[2] the lock's channel
-- ARGV[1] owner, the member of the zset
-- ARGV[2] as for acquire: the count that a connection's hold is to have, which is not kept here; or what becomes of a named owner's lease
-- ARGV[3] lease in ms, which shortens nothing, unless a named owner renews
-- ARGV[4] not-after in µs of Redis' clock; after it nothing is done
-- ARGV[5] how many may hold the lock. How many places are free goes by whoever has asked last
-- ARGV[6] PUBLISH, SPUBLISH, or BOTH
-- ARGV[7] the proxy that is to be woken if this is refused (see wake.lua), '' = none
-- ARGV[8] its place among those that are woken, 0 = none yet
-- RETURNS {1, made, ttl in ms, how many places are free, expiry}  granted; made and expiry are as those of acquire
--         {0, 0, ttl in ms, place or 0, others}  refused; ttl is that of the place that ends first, -1 = none ends
--         {-2, 0, 0, 0, 0}                  too late, nothing done
--         {-3, 0, 0, 0, 0}                  the key holds a lock of another kind
--         {-6, 0, 0, 0, 0}                  the hold that was to be taken once more has gone, nothing done
-- ERRORS  WRONGTYPE; ERR when the key has no integer. Nothing is changed then.

-- include clock limit

local key, owner, limit = KEYS[1], ARGV[1], tonumber(ARGV[5])
local named = not tonumber(ARGV[2])
if clock > tonumber(ARGV[4]) then return {-2, 0, 0, 0, 0} end
local ends, ttl = ends_of(key), redis.call('PTTL', key)
local held, first, over = taken(key, ends, ttl)
local was = first and place_of(ends, owner)
if not (was or named or ARGV[2] == '1') then return {-6, 0, 0, 0, 0} end
local left = limit - held

if not was and left <= 0 then
  local free = redis.pcall('GETRANGE', key, '0', '20')
  if type(free) == 'table' then
    local other = other_kind(key, free)
    return other == -3 and {-3, 0, 0, 0, 0} or other
  end
  if tonumber(free) and tonumber(free) ~= left then redis.pcall('INCRBY', key, left - tonumber(free)) end
  local comes = first < 9e14 and first - now or -1
  if ARGV[7] == '' then return {0, 0, comes, 0, 0} end
  -- include wake
  return {0, 0, comes, await(KEYS, ARGV[7], tonumber(ARGV[8]), ARGV[6], KEYS[2])}
end

if was then
  redis.call('ZREM', ends, '') -- as allow_writes does, for a full Redis
else
  left = left - 1
  local free = ttl == -2 and redis.pcall('SET', key, left) or redis.pcall('INCRBY', key, -1)
  if type(free) == 'table' and free.err then
    local other = other_kind(key, free)
    return other == -3 and {-3, 0, 0, 0, 0} or other
  end
  if ttl ~= -2 and free ~= left then redis.call('INCRBY', key, left - free) end
end
local at = math.max(now + tonumber(ARGV[3]), was or 0)
local lasts = at - now
if named then
  -- include lease
  at, lasts = lease_end(was and ARGV[2] or 'make', tonumber(ARGV[3]), was)
end
set_end(key, ends, owner, at, ttl == -2 and 0 or ttl)
if ARGV[7] ~= '' and ARGV[8] ~= '0' then
  -- include wake
  redis.pcall('ZREM', wakes_of(KEYS), ARGV[7])
  over = over + 1 -- this proxy may have been told of more places than this one
end
if over > 0 and left > 0 then announce_places(ARGV[6], KEYS, left, ARGV[7]) end
return {1, was and 0 or 1, lasts, left, named and at or 0}
