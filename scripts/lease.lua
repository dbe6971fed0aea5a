-- lease has what scripts share that set when a hold ends. Times are in ms, those of Redis' clock are in ms since 1970, but for now, which
-- is in µs.

-- allow_writes lets a script write although Redis is full (maxmemory). Redis refuses a command that may need memory only if it is the first
-- write of a script, so that no script stops half-way. This first write needs none, and changes nothing, since no owner has an empty name.
local function allow_writes(lock) redis.call('HDEL', lock, '') end

-- lengthen lets a key last for at least that long from now on.
local function lengthen(key, lease)
  if redis.call('PTTL', key) < lease then redis.call('PEXPIRE', key, lease) end
end

-- expires_at returns when a key expires, nil if there is no such key or Redis, before 7.0, does not tell.
local function expires_at(key)
  local at = redis.pcall('PEXPIRETIME', key)
  if type(at) == 'number' and at > 0 then return at end
end

-- A named owner's hold tells by its expiry who made it. The LOCK that makes it sets an even number of ms; each LOCK that joins it, and each
-- RENEW, an odd one. So the maker's expiry is there for only as long as nobody has joined.

-- even returns the expiry of a hold that is made now.
local function even(now, lease) return 2 * math.ceil((now / 1000 + lease) / 2) end

-- odd returns the expiry of a hold that another LOCK joins, or RENEW gives a lease. It is later than least.
local function odd(now, lease, least) return 2 * math.floor((math.max(math.floor(now / 1000) + lease, least) + 1) / 2) + 1 end

-- joined returns the expiry of a key that another LOCK of the owner joins. It is never earlier than the key's own.
local function joined(key, now, lease)
  return odd(now, lease, expires_at(key) or math.floor(now / 1000) + redis.call('PTTL', key))
end

-- expire sets an expiry, and returns for how long the key lasts.
local function expire(key, at, now)
  redis.call('PEXPIREAT', key, string.format('%.0f', at))
  return at - math.floor(now / 1000)
end

-- extended returns the expiry of a named owner's hold with a new lease; how is ARGV[4] of extend.lua.
local function extended(key, now, lease, how)
  if how == 'keep' then return even(now, lease) end
  if how == 'lengthen' then return joined(key, now, lease) end
  local expiry = odd(now, lease, 0)
  if expiry == expires_at(key) then expiry = expiry + 2 end
  return expiry
end
