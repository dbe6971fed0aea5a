-- wake is how every script wakes those that wait for a lock. Of the proxies whose clients wait each has an entry in a zset beside the lock, by the
-- time since when it waits. Whoever frees the lock tells the first alone, on its own channel, and puts it behind the others until it comes. The
-- zset is a hint: nobody has to look at it to take a free lock, an entry that is wrong or missing costs a message, and whatever is refused here is
-- passed over.

-- include tell wakes

-- waiting returns how many proxies have an entry.
local function waiting(keys)
  local count = redis.pcall('ZCARD', wakes_of(keys))
  return type(count) == 'number' and count or 0
end

-- listeners returns how many connections listen to a channel; nil: this account may not ask.
local function listeners(publish, channel)
  local most = 0
  for way, asked in pairs({PUBLISH = 'NUMSUB', SPUBLISH = 'SHARDNUMSUB'}) do
    if publish == way or publish == 'BOTH' then
      local of = redis.pcall('PUBSUB', asked, channel)
      if of.err then return nil end
      most = math.max(most, of[2])
    end
  end
  return most
end

-- others_listen says whether more connections listen to a channel than so many. It is assumed for an account that may not ask.
local function others_listen(publish, channel, many) return (listeners(publish, channel) or math.huge) > many end

-- await enters a proxy at its place, 0 = the last. It returns the place, and how many others listen to the lock's channel, if it does.
-- Of an entry that was there it takes out the one before, if nobody listens for that: so entries of the dead do not pile up while a lock is held.
local function await(keys, proxy, place, publish, channel)
  local wakes = wakes_of(keys)
  local at = place ~= 0 and redis.pcall('ZRANK', wakes, proxy)
  if type(at) == 'number' and at > 0 then
    local before = redis.pcall('ZRANGE', wakes, at - 1, at - 1)[1]
    if not others_listen(publish, channel .. ':' .. before, 0) then redis.pcall('ZREM', wakes, before) end
  end
  if place == 0 then
    place = tonumber(redis.pcall('ZSCORE', wakes, proxy) or nil) or clock
    if place > clock then place = clock end -- it was told
  end
  redis.pcall('ZADD', wakes, string.format('%.0f', place), proxy)
  redis.pcall('PEXPIRE', wakes, '60000')
  return place, math.max((listeners(publish, channel) or 1) - 1, 0)
end

-- strangers_listen says whether somebody listens to the lock's channel who has no entry: Redisson's threads, or a lockproxy of before. The proxy
-- that frees the lock is none, though its line, which has just been served, may listen still.
local function strangers_listen(publish, keys, channel, proxy)
  local many = waiting(keys)
  if not others_listen(publish, channel, many) then return false end
  local served = proxy and others_listen(publish, channel .. ':' .. proxy, 0) and not tonumber(redis.pcall('ZSCORE', wakes_of(keys), proxy) or nil)
  return not served or others_listen(publish, channel, many + 1)
end

-- wake tells the proxy that is first, and the next one if nobody listens there. It publishes on the lock's channel if strangers listen to that.
local function wake(publish, keys, channel, message, proxy)
  local wakes, told, looks = wakes_of(keys), false, 100
  if redis.pcall('EXISTS', wakes) ~= 1 then return tell(publish, channel, message) end
  while not told and looks > 0 do
    local first = redis.pcall('ZRANGE', wakes, '0', '0')[1]
    if not first then break end
    tell(publish, channel .. ':' .. first, '0')
    told, looks = others_listen(publish, channel .. ':' .. first, 0), looks - 1 -- what PUBLISH returns counts patterns, too
    if told then
      redis.pcall('ZADD', wakes, '+inf', first)
    else
      redis.pcall('ZREM', wakes, first)
    end
  end
  if not told or strangers_listen(publish, keys, channel, proxy) then tell(publish, channel, message) end
end
