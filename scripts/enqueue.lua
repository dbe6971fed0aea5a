-- enqueue has how waiters of lockproxy get and keep their places in a fair queue. It is included behind queue.
-- Redisson makes the scores of its waiters from one another: each of them adds the time for which it waits at most to the score of the waiter before
-- it, or to the time that the lock has left. When it gets the lock, or gives up, Redisson subtracts its time from all scores behind it. So
-- the score of a waiter of lockproxy has an extra, which is the sum of the times of Redisson's waiters before it:
-- score = when it was last reported + alive + extra. What Redisson has subtracted since then is missing in the score.

-- places returns the functions for the places in one fair queue.
local function places(lock, queue)
  local timeouts, tickets = beside(queue, 'redisson_lock_timeout'), beside(queue, 'lockproxy_fair')
  local now, places = math.floor(clock / 1000), {}

  local function score_of(name) return tonumber(redis.call('ZSCORE', timeouts, name) or 0) or 0 end

  -- bounded returns an extra that may be added to a score: clients may have written any score.
  local function bounded(extra) return math.max(0, math.min(extra, 1e12)) end

  -- extra_in returns what Redisson has not yet subtracted of the extra in a score.
  local function extra_in(score, reported) return bounded(score - (reported or now) - alive) end

  -- time_of returns for how long a waiter of Redisson waits at most, by its score and that of the waiter of lockproxy before it, if there is
  -- one. Redisson has made the first score from the second, but the clock has moved since, and reports have moved the second. A time of more than
  -- a minute is therefore taken for Redisson's fairLockWaitTimeout: with too small an extra a waiter would be taken out of the queue too early.
  local function time_of(score, before)
    local time = score - (before or now)
    if not before then time = math.max(math.min(time, alive), time - math.max(0, redis.call('PTTL', lock))) end
    return time > 60000 and math.max(time, 300000) or math.max(time, 0)
  end

  -- extra_at_end returns the extra of a waiter that comes to the end of the list. It is that of the last waiter of lockproxy, and the times of
  -- Redisson's waiters behind that, by which their scores rise. Of more than 1,000 of them it looks at the last.
  local function extra_at_end()
    local name = redis.call('LINDEX', queue, '-1')
    if not name then return 0 end
    local _, reported = read_entry(redis.call('HGET', tickets, name))
    if reported then return extra_in(score_of(name), reported) end
    local names, entries, ours -- ours is where the last waiter of lockproxy stands in names, 0 = nowhere
    for _, looks in ipairs({32, 1000}) do
      names = redis.call('LRANGE', queue, -looks, -1)
      entries, ours = redis.call('HMGET', tickets, unpack(names)), #names
      while ours > 0 and not read_entry(entries[ours]) do ours = ours - 1 end
      if ours > 0 or #names < looks then break end
    end
    local extra, before = 0, nil
    if ours > 0 then
      before, _, reported = score_of(names[ours]), read_entry(entries[ours])
      extra = extra_in(before, reported)
    end
    local first = score_of(names[ours + 1])
    return bounded(extra + time_of(first, before) + math.max(0, score_of(name) - first))
  end

  -- report notes that a waiter is alive. Further fields of the hash may follow.
  local function report(owner, ticket, extra, ...)
    redis.call('ZADD', timeouts, now + extra + alive, owner)
    redis.call('HSET', tickets, owner, string.format('%.0f:%.0f', ticket, now), ...)
  end

  -- stay reports a waiter that stands in the list, with its entry, and with others of Redisson before it or not. It returns its extra.
  function places.stay(owner, ticket, entry, others)
    local _, reported = read_entry(entry)
    local extra = others and extra_in(score_of(owner), reported) or 0
    report(owner, ticket, extra)
    return extra
  end

  -- remember gives the hash of tickets a TTL longer than the scores last: without tickets the waiters of a dead proxy would be taken for
  -- Redisson's, which count as alive until their scores pass.
  function places.remember(extra)
    if redis.call('PTTL', tickets) < extra + 5 * alive then redis.call('PEXPIRE', tickets, extra + 6 * alive) end
  end

  -- insert puts an owner at its ticket's place: behind the last waiter with a lower ticket, or at the head if there is none. It returns its
  -- extra, or nil: there are too many of Redisson's waiters to search on. It searches by bisection, because tickets rise from head to tail;
  -- Redisson's waiters, which have none, may stand anywhere between.
  local function insert(owner, ticket)
    local low, high, looks, before, extra = 0, redis.call('LLEN', queue) - 1, 1000, nil, 0
    while low <= high do
      local middle = math.floor((low + high) / 2)
      local at, name, theirs, reported = middle, nil, nil, nil
      while at >= low and not theirs do
        looks = looks - 1
        if looks < 0 then return nil end
        name = redis.call('LINDEX', queue, at)
        theirs, reported = read_entry(redis.call('HGET', tickets, name))
        at = at - 1
      end
      if theirs and theirs > ticket then
        high = at
      else
        low = middle + 1
        if theirs then before, extra = name, extra_in(score_of(name), reported) end
      end
    end
    if before then
      redis.call('LINSERT', queue, 'AFTER', before, owner)
    else
      redis.call('LPUSH', queue, owner)
    end
    return extra
  end

  -- enter puts an owner into the queue, or keeps its place there, and returns its ticket. Its argument ticket is the one that this waiter got
  -- before, or 0: a waiter that was taken out of the queue although it is alive comes back to its old place. If one of the keys has another type
  -- the script fails before it changes anything.
  function places.enter(owner, ticket)
    local score, entries = redis.call('ZSCORE', timeouts, owner), redis.call('HMGET', tickets, owner, '')
    local place, reported = read_entry(entries[1])
    if score and place and now - reported < 1000 then return place end -- it was reported a moment ago
    local last, extra = tonumber(entries[2] or 0) or 0, nil
    if not (score and place) then place = ticket > 0 and ticket or math.max(last + 1, clock) end
    if score then
      redis.call('ZREM', timeouts, '') -- as allow_writes: nobody loses a place because Redis is full
      extra = extra_in(tonumber(score), reported)
    elseif ticket > 0 then
      extra = insert(owner, ticket)
    end
    if not extra then
      extra = extra_at_end()
      redis.call('RPUSH', queue, owner)
    end
    report(owner, place, extra, '', math.max(last, place))
    places.remember(extra)
    return place
  end

  return places
end
