-- queue has what the scripts of a plain lock share that work on its fair queue.
-- The queue is Redisson's: a list of owners, and a zset that says until when, in ms since 1970, each of them counts as alive.
-- lockproxy adds a hash with an entry for each of its own waiters: owner -> <ticket>:<when its proxy last reported it, in ms>. A ticket
-- is a number that rises, so that a waiter that was taken out although it is alive comes back to its old place. The field with the empty
-- name has the last ticket given.

-- include clock beside tell

-- alive is for how many ms a waiter of lockproxy counts as alive after its proxy has reported it.
local alive = 10000

-- purges is how many dead waiters this run of the script may still take out, so that a long queue does not block Redis.
local purges = 1000

-- read_entry returns a waiter's ticket, and when it was last reported; nothing for a waiter of Redisson, which has no entry.
local function read_entry(entry)
  local ticket, reported = string.match(entry or '', '^(%d+):(%d+)$')
  return tonumber(ticket), tonumber(reported)
end

-- fair_queue returns the functions for one fair queue.
local function fair_queue(queue)
  local timeouts, tickets = beside(queue, 'redisson_lock_timeout'), beside(queue, 'lockproxy_fair')
  local fair = {}

  -- drop deletes what there is of a waiter, except its entry in the list.
  local function drop(owner)
    local known = redis.call('HLEN', tickets) -- if this key has another type the script fails here, before it changes anything
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

  -- first takes dead waiters, and those without a score, out of the head of the queue. It returns the first owner that is alive, for how
  -- long in ms it still counts as alive, and whether others were taken out before it; nothing if nobody waits. The owner asks, for
  -- which the script runs, counts as alive in any case. If more are to be taken out than purges allows, first returns the empty
  -- name, which no owner has, and 1 ms: the script refuses the lock, and the proxy soon tries again.
  function fair.first(asks)
    local now, gone = math.floor(clock / 1000), nil
    while true do
      local owner = redis.pcall('LINDEX', queue, 0)
      if type(owner) ~= 'string' then return end
      if owner == asks then return owner, alive, gone end
      local left = (tonumber(redis.call('ZSCORE', timeouts, owner) or 0) or 0) - now
      local _, reported = read_entry(redis.call('HGET', tickets, owner))
      if reported then left = math.min(left, reported + alive - now) end
      if left > 0 then return owner, math.ceil(left), gone end
      gone = true
      if purges == 0 then return '', 1, gone end
      purges = purges - 1
      redis.call('LPOP', queue)
      drop(owner)
    end
  end

  -- wake tells the first in the queue, on its own channel, that it is its turn. Redisson's waiters listen to their own channels only.
  function fair.wake(publish, owner)
    if owner and owner ~= '' then tell(publish, beside(queue, 'redisson_lock__channel') .. ':' .. owner, '0') end
  end

  return fair
end
