-- enqueue has an owner wait in the fair queue, or keeps its place: it stands before acquire, after queue.

-- until_when is the score of a waiter of lockproxy behind others of Redisson, each of which will take what its own lock waits
-- (fair_wait) off every score, once.
local function until_when(now, others, fair_wait) return string.format('%.0f', now + alive + others * fair_wait) end

-- remember keeps the tickets for longer than the scores last: without them those of a dead proxy would count as Redisson's.
local function remember(tickets, others, fair_wait)
  local ttl = 6 * alive + others * fair_wait
  if redis.call('PTTL', tickets) < ttl then redis.call('PEXPIRE', tickets, ttl) end
end

-- numbered is the ticket of an entry, nothing for a waiter of Redisson.
local function numbered(entry) return entry and tonumber(string.match(entry, '^(%d+):')) end

-- insert puts an owner where its ticket says: behind the last of ours with a lower one, else first of all. Our tickets rise from
-- the first in the queue to the last, with waiters of Redisson anywhere between.
local function insert(queue, tickets, owner, ticket)
  local low, high, before, looks = 0, redis.call('LLEN', queue) - 1, nil, 1000
  while low <= high do
    local middle = math.floor((low + high) / 2)
    local at, theirs, name = middle, nil, nil
    while at >= low and not theirs do
      looks = looks - 1
      if looks < 0 then return redis.call('RPUSH', queue, owner) end -- among so many of Redisson's its place is not looked for
      name = redis.call('LINDEX', queue, at)
      theirs = numbered(redis.call('HGET', tickets, name))
      at = at - 1
    end
    if theirs and theirs > ticket then
      high = at
    else
      low = middle + 1
      if theirs then before = name end
    end
  end
  if before then
    redis.call('LINSERT', queue, 'AFTER', before, owner)
  else
    redis.call('LPUSH', queue, owner)
  end
end

-- enqueue returns the ticket. The one given is what it returned before: a waiter that was taken out although it lives comes back
-- to its old place.
local function enqueue(queue, owner, ticket, fair_wait, time)
  local timeouts, tickets = beside(queue, 'redisson_lock_timeout'), beside(queue, 'lockproxy_fair')
  local now = math.floor(time / 1000)
  -- What is of another type fails here, before anything is changed.
  local length, known = redis.call('LLEN', queue), redis.call('ZSCORE', timeouts, owner)
  local place, others = numbered(redis.call('HGET', tickets, owner)), 0
  if known and place then
    redis.call('ZREM', timeouts, '') -- as allow_writes: a full Redis takes nobody's place
  else
    local last = tonumber(redis.call('HGET', tickets, '') or 0) or 0
    place = ticket
    if place == 0 then place = math.max(last + 1, time) end
    redis.call('HSET', tickets, '', string.format('%.0f', math.max(last, place)))
    if not known and ticket > 0 then
      insert(queue, tickets, owner, ticket)
    else
      others = math.max(0, length + 1 - redis.call('HLEN', tickets))
      if not known then redis.call('RPUSH', queue, owner) end
    end
    redis.call('ZADD', timeouts, until_when(now, others, fair_wait), owner)
  end
  redis.call('HSET', tickets, owner, string.format('%.0f:%.0f', place, now))
  remember(tickets, others, fair_wait)
  return place
end
