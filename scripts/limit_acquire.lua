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
local other, free = other_kind(key)
if other then return other == -3 and {-3, 0, 0, 0, 0} or other end
if free ~= '' and not string.find(free, '^-?%d+$') then return redis.error_reply('ERR value is not an integer or out of range') end

local held, first, over = taken(key)
local was = first and place_of(key, owner)
if not (was or named or ARGV[2] == '1') then return {-6, 0, 0, 0, 0} end
local granted = was or held < limit
redis.call('ZREM', ends_of(key), '') -- as allow_writes does, for a full Redis
local left = limit - held - (granted and not was and 1 or 0)
if free == '' then
  if granted then redis.call('SET', key, left) end
elseif tonumber(free) + over ~= left then
  redis.call('INCRBY', key, left - tonumber(free) - over)
end
if not granted then
  local ttl = first < 9e14 and first - now or -1
  if ARGV[7] == '' then return {0, 0, ttl, 0, 0} end
  -- include wake
  return {0, 0, ttl, await(KEYS, ARGV[7], tonumber(ARGV[8]), ARGV[6], KEYS[2])}
end

local at = math.max(now + tonumber(ARGV[3]), was or 0)
local lasts = at - now
if named then
  -- include lease
  at, lasts = lease_end(was and ARGV[2] or 'make', tonumber(ARGV[3]), was)
end
set_end(key, owner, at, free == '')
if ARGV[7] ~= '' and ARGV[8] ~= '0' then
  -- include wake
  redis.pcall('ZREM', wakes_of(KEYS), ARGV[7])
  over = over + 1 -- this proxy may have been told of more places than this one
end
if over > 0 and left > 0 then announce_places(ARGV[6], KEYS, ARGV[7]) end
return {1, was and 0 or 1, lasts, left, named and at or 0}
