-- vacant tells those that wait for locks whose holders let them end without an UNLOCK. It looks and tells in one step, so that nobody
-- is told of a lock that somebody else has by now. A message too many does no harm: it may be run late, or twice.
--
-- KEYS    for each lock its hash, followed by the fair queue of a plain lock, or the channel of a read/write lock
-- ARGV[1] PUBLISH, SPUBLISH, or BOTH
-- ARGV[2] letters, one for each lock: P it was held as a plain lock, R for reading, W for writing
-- ARGV[3…] for each lock the hash field of the holder whose hold has ended
-- RETURNS for each lock 0 it is free, which was told; -1 somebody else holds it, or it does not end;
--         else in how many ms it ends: the holder's time is not over yet by Redis' clock

local out, now = {}, clock()
for i = 1, #ARGV[2] do
  local lock, where, kind = KEYS[2 * i - 1], KEYS[2 * i], string.sub(ARGV[2], i, i)
  if redis.call('EXISTS', lock) == 1 then
    out[i] = -1
    if redis.pcall('HEXISTS', lock, ARGV[2 + i]) == 1 then
      local left = redis.call('PTTL', lock)
      if left >= 0 then out[i] = math.max(left, 1) end
    end
  else
    out[i] = 0
    if kind == 'P' then
      announce(ARGV[1], where, now)
    else
      tell(ARGV[1], where, kind == 'W' and '1' or '0')
    end
  end
end
return out
