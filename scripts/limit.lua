-- limit is what the scripts of a lock that several owners may hold share: Redisson's RPermitExpirableSemaphore, in its bytes. The key has how
-- many places are free. A zset beside it has the owner of each that is taken, by when it ends: in ms since 1970, 922337203685477 for one of
-- Redisson's without an end. A key that has no expiry was made by Redisson's trySetPermits, and stays. One that lockproxy has made goes with
-- the last place that is given back. If none is, it lasts a day or two longer than the last one: Redisson's threads, which cannot do without it,
-- may have seen it.

-- include tell

local now = math.floor(clock / 1000) -- as Redis counts

-- ends_of returns the key of the zset, by Redisson's suffixName.
local function ends_of(key) return (string.find(key, '{', 1, true) and key or '{' .. key .. '}') .. ':timeout' end

-- place_of returns when an owner's place ends, nil if there is none.
local function place_of(ends, owner)
  local at = tonumber(redis.call('ZSCORE', ends, owner) or nil)
  return at and at > now and at or nil
end

-- other_kind returns the number that says that the key holds a lock of another kind, or the error of a command that needed an integer there.
local function other_kind(key, refusal) return redis.call('TYPE', key).ok == 'hash' and -3 or refusal end

-- taken returns how many places are taken, when the first of them ends (nil: none is), and how many have ended and were taken out just now: a hundred
-- at most. left is the key's TTL.
local function taken(key, ends, left)
  local first = tonumber(redis.call('ZRANGE', ends, '0', '0', 'WITHSCORES')[2])
  if not first then return 0, nil, 0 end
  local over = {}
  if first <= now then
    over = redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', '0', '100')
    redis.call('ZREM', ends, unpack(over))
    if left ~= -2 then redis.pcall('INCRBY', key, #over) end
    first = tonumber(redis.call('ZRANGEBYSCORE', ends, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', '0', '1')[2])
  end
  return redis.call('ZCOUNT', ends, '(' .. now, '+inf'), first, #over
end

-- cover lets both keys, of which the first ends in left ms, last longer than the last place. It returns nil if no place is taken.
local function cover(key, ends, left)
  local last, day = tonumber(redis.call('ZRANGE', ends, '-1', '-1', 'WITHSCORES')[2]), 86400000
  if last and now + left < last + day then
    redis.call('PEXPIREAT', key, string.format('%.0f', last + 2 * day))
    redis.call('PEXPIREAT', ends, string.format('%.0f', last + 2 * day))
  end
  return last
end

-- set_end sets when an owner's place ends.
local function set_end(key, ends, owner, at, left)
  redis.call('ZADD', ends, string.format('%.0f', at), owner)
  if left >= 0 then cover(key, ends, left) end
end

-- announce_places tells whoever waits that places are free, so many.
local function announce_places(publish, keys, free, proxy)
  free = math.max(tonumber(free) or 1, 0)
  if redis.call('EXISTS', 'lockproxy_wake:' .. keys[2] .. ':' .. keys[1]) == 0 then return tell(publish, keys[2], free) end -- as wakes_of says
  -- include wake
  wake(publish, keys, keys[2], free, proxy)
end

-- leave_places deletes both keys when the last place was given back, unless Redisson's threads wait, or the key does not end.
local function leave_places(publish, keys, ends, left, proxy)
  if left < 0 or cover(keys[1], ends, left) then return end
  -- include wake
  if not strangers_listen(publish, keys, keys[2], proxy) then redis.call('DEL', keys[1]) end
end
