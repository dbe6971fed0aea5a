-- enqueue has how waiters of lockproxy get and keep their places in a fair queue. It is included behind queue.

-- places returns the functions for the places in one fair queue.
local function places(lock, queue)
  local timeouts, tickets = beside(queue, 'redisson_lock_timeout'), beside(queue, 'lockproxy_fair')
  local now, places = math.floor(clock / 1000), {}

  -- numbered returns the ticket in a waiter's entry of the hash, reported when its proxy last reported it; nothing for a waiter of Redisson, which
  -- has no entry.
  local function numbered(entry) return entry and tonumber(string.match(entry, '^(%d+):')) end
  local function reported(entry) return entry and tonumber(string.match(entry, ':(%d+)$')) end

  -- owed returns what Redisson's waiters before one of lockproxy's will still take off its score. Each of them adds the time that it waits at most to
  -- the score of the one before it, or to what the lock has left; and when it gets the lock, or gives up, Redisson subtracts its time from all
  -- scores behind it. So a waiter's score is higher by all these times, and what has been subtracted since it was reported shows in it.
  -- It is bounded, since a score may be anything, and no TTL.
  local function bounded(sum) return math.max(0, math.min(sum, 1e12)) end
  local function owed(score, heard) return bounded((tonumber(score) or 0) - (heard or now) - alive) end

  -- wait returns for how long one of Redisson's waits, by its score and that of the waiter of lockproxy before it, if there is one: then Redisson
  -- has made the one from the other, but the other has been moved since, and so has the clock. More than a minute is therefore taken for
  -- Redisson's fairLockWaitTimeout: a waiter that Redisson takes out of the queue too early loses its turn.
  local function wait(score, before)
    local time = score - (before or now)
    if not before then time = math.max(math.min(time, alive), time - math.max(0, redis.call('PTTL', lock))) end
    return time > 60000 and math.max(time, 300000) or math.max(time, 0)
  end

  -- owed_behind returns what Redisson's waiters in a part of the list will take off the score of one that stands behind them.
  local function owed_behind(names)
    local sum, last, others = 0, nil, false -- last is the score of the waiter before, others whether that is one of Redisson's
    for i, entry in ipairs(#names > 0 and redis.call('HMGET', tickets, unpack(names)) or {}) do
      local score = tonumber(redis.call('ZSCORE', timeouts, names[i]) or 0) or 0
      local heard = reported(entry)
      if heard then
        sum = owed(score, heard)
      else
        sum = sum + (others and math.max(0, score - last) or wait(score, last))
      end
      last, others = score, not heard
    end
    return bounded(sum)
  end

  -- report notes that a waiter is alive, and has it count as alive for a while longer than what is owed.
  local function report(owner, ticket, sum)
    redis.call('ZADD', timeouts, now + sum + alive, owner)
    redis.call('HSET', tickets, owner, string.format('%.0f:%.0f', ticket, now))
  end

  -- stay reports a waiter that stands in the list, with others of Redisson before it or not. It returns what is owed.
  function places.stay(owner, ticket, others)
    local sum = others and owed(redis.call('ZSCORE', timeouts, owner), reported(redis.call('HGET', tickets, owner))) or 0
    report(owner, ticket, sum)
    return sum
  end

  -- remember gives the hash of tickets a TTL longer than the scores last: without tickets the waiters of a dead proxy would be taken for
  -- Redisson's, which count as alive until their scores pass.
  function places.remember(sum)
    local ttl = sum + 6 * alive
    if redis.call('PTTL', tickets) < ttl then redis.call('PEXPIRE', tickets, ttl) end
  end

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

  -- front returns those who stand before a waiter, as far as they are among the last 1,000: the one before it alone if that is lockproxy's.
  local function front(owner)
    local names = redis.call('LRANGE', queue, -2, -1)
    if #names > 1 and (names[2] ~= owner or redis.call('HEXISTS', tickets, names[1]) == 0) then names = redis.call('LRANGE', queue, -1000, -1) end
    for i, name in ipairs(names) do
      if name == owner then return {unpack(names, 1, i - 1)} end
    end
    return names
  end

  -- enter puts an owner into the queue, or keeps its place there, and returns its ticket. Its argument ticket is the one that this waiter got
  -- before, or 0: a waiter that was taken out of the queue although it is alive comes back to its old place. If one of the keys has another type
  -- the script fails before it changes anything.
  function places.enter(owner, ticket)
    local known, entry = redis.call('ZSCORE', timeouts, owner), redis.call('HGET', tickets, owner)
    local place, heard, sum = numbered(entry), reported(entry), nil
    if known and place then
      redis.call('ZREM', timeouts, '') -- as allow_writes: nobody loses a place because Redis is full
      sum = owed(known, heard)
      report(owner, place, sum)
      places.remember(sum)
      return place
    end
    local last = tonumber(redis.call('HGET', tickets, '') or 0) or 0
    place = ticket > 0 and ticket or math.max(last + 1, clock)
    if not known and ticket > 0 then
      insert(owner, ticket)
    elseif not known then
      redis.call('RPUSH', queue, owner)
    end
    redis.call('HSET', tickets, '', math.max(last, place))
    sum = owed_behind(front(owner))
    report(owner, place, sum)
    places.remember(sum)
    return place
  end

  return places
end
