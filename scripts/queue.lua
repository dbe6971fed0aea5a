-- queue is what the scripts of a plain lock share that mind its fair queue: it stands before each of them.
-- The queue is Redisson's: a list of owners, and a zset that says until when, in ms since 1970, each of them counts as alive.
-- The waiters of lockproxy have a ticket beside it, in a hash: owner -> <ticket>:<when it was last heard of, in ms>. A ticket
-- is the place in the queue, for one that was taken out while it lived; the field with the empty name has the last one given.
-- Only the list is among the KEYS, since nearly all locks have no queue and each KEY costs; the names of the others, and of the
-- channel, differ in how they begin.

-- alive is for how long in ms a waiter of lockproxy counts as alive without being heard of.
local alive = 10000

-- purges is how many waiters that are over one run of a script still takes out of the queue.
local purges = 1000

-- beside is the name of what belongs to the same lock as a queue.
local function beside(queue, prefix) return prefix .. string.sub(queue, 20) end

-- mind gives the steps on one fair queue, at a time by Redis' clock in µs. They are made only for a lock that has one.
local function mind(queue, time)
  local timeouts, tickets = beside(queue, 'redisson_lock_timeout'), beside(queue, 'lockproxy_fair')
  local fair = {}

  -- drop forgets a waiter, but for its place in the list.
  local function drop(owner)
    local known = redis.call('HLEN', tickets) -- of another type it fails here, before anything is changed
    local waited = redis.call('ZREM', timeouts, owner)
    if known - redis.call('HDEL', tickets, owner) == 1 then redis.call('DEL', tickets) end
    return waited
  end

  -- quit takes a waiter out of the queue.
  function fair.quit(owner)
    local waited = drop(owner)
    redis.call('LREM', queue, 1, owner)
    return waited
  end

  -- first is the owner whose turn it is, for how long in ms it counts as alive, and whether others were taken out before it:
  -- those that are over, or of whom the zset knows nothing. Whoever asks lives. It is nothing when nobody waits. When there are more of those than one
  -- run takes out it is an owner without a name, which nobody is: whoever asks is to come again in a moment.
  function fair.first(asks)
    local now, gone = math.floor(time / 1000), nil
    while true do
      local owner = redis.pcall('LINDEX', queue, 0)
      if type(owner) ~= 'string' then return end
      if owner == asks then return owner, alive, gone end
      local left = (tonumber(redis.call('ZSCORE', timeouts, owner) or 0) or 0) - now
      local heard = string.match(redis.call('HGET', tickets, owner) or '', ':(%d+)$')
      if heard then left = math.min(left, tonumber(heard) + alive - now) end
      if left > 0 then return owner, math.ceil(left), gone end
      gone = true
      if purges == 0 then return '', 1, gone end
      purges = purges - 1
      redis.call('LPOP', queue)
      drop(owner)
    end
  end

  return fair
end

-- announce tells those that wait that the lock is free: everybody who listens, and whose turn it is in the queue.
local function announce(publish, queue, time)
  local channel = beside(queue, 'redisson_lock__channel')
  tell(publish, channel, '0')
  if redis.call('EXISTS', queue) == 0 then return end
  local owner = mind(queue, time).first()
  if owner and owner ~= '' then tell(publish, channel .. ':' .. owner, '0') end
end
