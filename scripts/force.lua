-- force frees the plain lock KEYS[1], whoever holds it: Redisson's forceUnlock. Unlike that, it wakes waiters also when nobody holds the
-- lock. A hash that cannot be a plain lock, with several fields or a value that is no integer, is left alone: it is somebody's data.
--
-- KEYS[1] lock hash
-- KEYS[2] its fair queue
-- ARGV[1] PUBLISH, SPUBLISH, or BOTH
-- ARGV[2] not-after in µs of Redis' clock
-- RETURNS 1 freed, 0 nothing was held, -2 too late, -3 the key holds a lock of another kind, -4 the hash is not a lock
-- ERRORS  WRONGTYPE. Nothing is changed then.

-- include clock announce

if clock > tonumber(ARGV[2]) then return -2 end

if redis.call('HLEN', KEYS[1]) == 0 then
  announce(ARGV[1], KEYS)
  return 0
end
if redis.call('HEXISTS', KEYS[1], 'mode') == 1 then return -3 end
if redis.call('HLEN', KEYS[1]) > 1 then return -4 end
local owner = redis.call('HKEYS', KEYS[1])[1]
local short = redis.call('HSTRLEN', KEYS[1], owner) <= 20 -- a client may have written 60 MB there
if not short or not string.find(redis.call('HGET', KEYS[1], owner), '^-?%d+$') then return -4 end
announce(ARGV[1], KEYS)
redis.call('DEL', KEYS[1])
return 1
