-- vacant wakes the waiters of locks whose leases have ended without an UNLOCK, or which were announced to a proxy that no longer waits. It looks and publishes in one script, so that nobody is
-- woken for a lock that somebody else has by now. It may run late, or twice, since a message too many does no harm.
--
-- KEYS    for each lock its hash, followed by the fair queue of a plain lock, or the channel of another one
-- ARGV[1] PUBLISH, SPUBLISH, or BOTH
-- ARGV[2] letters, one for each lock: P it was held as a plain lock, R for reading, W for writing, L by one of several
-- ARGV[3…] for each lock the hash field of the holder whose hold has ended, or the proxy that no longer waits, which has no entry then (see wake.lua)
-- RETURNS for each lock 0 it is free, and its waiters were woken; -1 somebody else holds it, or it has no TTL;
--         else for how many ms the holder still has the lock, by Redis' clock

-- include clock announce wake limit

local out = {}
for i = 1, #ARGV[2] do
  local lock, where, kind = KEYS[2 * i - 1], KEYS[2 * i], string.sub(ARGV[2], i, i)
  redis.pcall('ZREM', wakes_of({lock, where}), ARGV[2 + i])
  if kind == 'L' then
    local ends, left = ends_of(lock), redis.call('PTTL', lock)
    local known, at = pcall(place_of, ends, ARGV[2 + i])
    out[i] = known and at and at - now or 0
    if known and not at then
      taken(lock, ends, left)
      announce_places(ARGV[1], {lock, where}, redis.pcall('GETRANGE', lock, '0', '20'))
      leave_places(ARGV[1], {lock, where}, ends, left)
    end
  elseif redis.call('EXISTS', lock) == 1 then
    out[i] = -1
    if redis.pcall('HEXISTS', lock, ARGV[2 + i]) == 1 then
      local left = redis.call('PTTL', lock)
      if left >= 0 then out[i] = math.max(left, 1) end
    end
  else
    out[i] = 0
    if kind == 'P' then
      announce(ARGV[1], {lock, where})
    else
      wake(ARGV[1], {lock, where}, where, kind == 'W' and '1' or '0')
    end
  end
end
return out
