-- limit_renew is renew for connections' places of locks that several may hold.
--
-- KEYS    for each hold the key of its lock
-- ARGV[1] not-after in µs of Redis' clock; after it nothing is done
-- ARGV[2…] for each hold its owner, and the lease in ms
-- RETURNS what renew returns

-- include clock limit

if clock > tonumber(ARGV[1]) then return {-2} end
local out = {}
for i, key in ipairs(KEYS) do
  local owner, lease, ends = ARGV[2 * i], tonumber(ARGV[2 * i + 1]), ends_of(key)
  local known, was = pcall(place_of, ends, owner)
  out[i] = known and was and 1 or 0
  if out[i] == 1 then
    redis.call('ZREM', ends, '') -- as allow_writes does, for a full Redis
    set_end(key, ends, owner, math.max(was, now + lease), redis.call('PTTL', key))
  end
end
return out
