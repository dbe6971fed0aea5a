-- enqueue has how waiters of lockproxy get and keep their places in a fair queue (see queue.lua).

-- include queue

-- places returns the functions for the places in one fair queue.
local function places(lock, queue)
  local timeouts, tickets = beside(queue, 'redisson_lock_timeout'), beside(queue, 'lockproxy_fair')
  local now, places = math.floor(clock() / 1000), {}

  -- needed returns for how many ms Redisson's waiters that stand before one of lockproxy's would wait themselves, all together; score is the
  -- highest of theirs, 0 if there are none. In their scores these times add up, on top of what the lock had left. When one of them gets the lock,
  -- Redisson subtracts its time from all scores.
  function places.needed(score)
    if score == 0 then return 0 end
    return math.max(0, score - now - math.max(0, redis.call('PTTL', lock)))
  end

  -- hear notes that a waiter is alive.
  local function hear(owner, ticket) redis.call('HSET', tickets, owner, string.format('%.0f:%.0f', ticket, now)) end

  -- report notes that a waiter is alive, and has it count as alive for a while longer than the others need.
  function places.report(owner, ticket, others)
    redis.call('ZADD', timeouts, now + others + alive, owner)
    hear(owner, ticket)
  end

  -- remember gives the hash of tickets a TTL longer than the scores last: without tickets the waiters of a dead proxy would be taken for
  -- Redisson's, which count as alive until their scores pass.
  function places.remember(others)
    local ttl = others + 6 * alive
    if redis.call('PTTL', tickets) < ttl then redis.call('PEXPIRE', tickets, ttl) end
  end

  -- numbered returns the ticket in a waiter's entry of that hash, nothing for a waiter of Redisson, which has no entry.
  local function numbered(entry) return entry and tonumber(string.match(entry, '^(%d+):')) end

  -- insert puts an owner at its ticket's place: behind the last waiter with a lower ticket, or at the head if there is none. It searches by
  -- bisection, because tickets rise from head to tail; Redisson's waiters, which have none, may stand anywhere between.
  local function insert(owner, ticket)
    local low, high, before, looks = 0, redis.call('LLEN', queue) - 1, nil, 1000
    while low <= high do
      local middle = math.floor((low + high) / 2)
      local at, theirs, name = middle, nil, nil
      while at >= low and not theirs do
        looks = looks - 1
        if looks < 0 then return redis.call('RPUSH', queue, owner) end -- too many of Redisson's waiters to search on
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

  -- last_score returns the highest score of Redisson's waiters among the first 1,000 in a queue, 0 if there are none. All others have tickets.
  -- The list is looked at unless the last waiter is lockproxy's and its score says that none of Redisson's stood before it.
  local function last_score()
    local last = redis.call('LINDEX', queue, -1)
    if not last then return 0 end
    if redis.call('HEXISTS', tickets, last) == 1 and (tonumber(redis.call('ZSCORE', timeouts, last) or 0) or 0) <= now + alive then return 0 end
    local highest, waiters = 0, redis.call('LRANGE', queue, 0, 999)
    for i, ticket in ipairs(redis.call('HMGET', tickets, unpack(waiters))) do
      if not ticket then highest = math.max(highest, tonumber(redis.call('ZSCORE', timeouts, waiters[i]) or 0) or 0) end
    end
    return highest
  end

  -- enter puts an owner into the queue, or keeps its place there, and returns its ticket. Its argument ticket is the one that this waiter got
  -- before, or 0: a waiter that was taken out of the queue although it is alive comes back to its old place. If one of the keys has another type
  -- the script fails before it changes anything.
  function places.enter(owner, ticket)
    local known, place = redis.call('ZSCORE', timeouts, owner), numbered(redis.call('HGET', tickets, owner))
    if known and place then
      redis.call('ZREM', timeouts, '') -- as allow_writes: nobody loses a place because Redis is full
      hear(owner, place)
      places.remember(0)
      return place
    end
    local last, others = tonumber(redis.call('HGET', tickets, '') or 0) or 0, 0
    place = ticket > 0 and ticket or math.max(last + 1, clock())
    if not known and ticket > 0 then
      insert(owner, ticket)
    else
      others = places.needed(last_score())
      if not known then redis.call('RPUSH', queue, owner) end
    end
    redis.call('HSET', tickets, '', math.max(last, place))
    places.report(owner, place, others)
    places.remember(others)
    return place
  end

  return places
end
