-- limit is what the scripts of a lock that several owners may hold share: Redisson's RPermitExpirableSemaphore, in its bytes. The key has how
-- many places are free. A zset beside it has the owner of each that is taken, by when it ends: in ms since 1970, 922337203685477 for one of
-- Redisson's without an end. A key that has no expiry was made by Redisson's trySetPermits, and stays; one that lockproxy has made lasts as long
-- as the last place.

local now = math.floor(clock / 1000) -- as Redis counts

-- ends_of returns the key of the zset, by Redisson's suffixName.
local function ends_of(key) return (string.find(key, '{', 1, true) and key or '{' .. key .. '}') .. ':timeout' end

-- place_of returns when an owner's place ends, nil if there is none.
local function place_of(key, owner)
  local at = tonumber(redis.call('ZSCORE', ends_of(key), owner) or nil)
  return at and at > now and at or nil
end

-- other_kind returns the number that says that the key holds a lock of another kind, or Redis' error if it holds something else; nil: it may be a
-- lock that several hold.
local function other_kind(key)
  local free = redis.pcall('GETRANGE', key, '0', '20')
  if type(free) ~= 'table' then return nil, free end
  return redis.call('TYPE', key).ok == 'hash' and -3 or free
end

-- taken returns how many places are taken, when the first of them ends (nil: none is), and how many have ended and were taken out just now: a hundred
-- at most.
local function taken(key)
  local ends = ends_of(key)
  local first, over = redis.call('ZRANGE', ends, '0', '0', 'WITHSCORES')[2], {}
  if first and tonumber(first) <= now then
    over = redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', '0', '100')
    redis.call('ZREM', ends, unpack(over))
    if redis.call('EXISTS', key) == 1 then redis.call('INCRBY', key, #over) end
    first = redis.call('ZRANGEBYSCORE', ends, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')[2]
  end
  return first and redis.call('ZCOUNT', ends, '(' .. now, '+inf') or 0, tonumber(first), #over
end

-- set_end sets when an owner's place ends, and lets both keys last as long as the last place, if they end at all.
local function set_end(key, owner, at, made)
  local ends = ends_of(key)
  redis.call('ZADD', ends, string.format('%.0f', at), owner)
  local left = made and 0 or redis.call('PTTL', key)
  local last = left >= 0 and redis.call('ZRANGE', ends, '-1', '-1', 'WITHSCORES')[2]
  if last and now + left < tonumber(last) then
    redis.call('PEXPIREAT', key, last)
    redis.call('PEXPIREAT', ends, last)
  end
end

-- announce_places tells whoever waits how many places are free.
local function announce_places(publish, keys, proxy)
  -- include wake
  local free = tonumber(redis.pcall('GETRANGE', keys[1], '0', '20')) or 1
  wake(publish, keys, keys[2], math.max(free, 0), proxy)
end
