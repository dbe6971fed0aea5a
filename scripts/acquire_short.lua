-- acquire_short stands before acquire in the same script, and before the functions that acquire needs, because defining these takes time.
-- It handles the common cases: it grants a lock that is free and has no fair queue, re-enters a lock that its owner holds, and refuses a
-- lock that somebody else holds. In all other cases acquire goes on.
-- KEYS and ARGV are those of acquire. As each ARGV costs Redis about as much time as a quarter of a command, callers may send fewer
-- (Brief in internal/lockstore/node/steps.go). If ARGV[5] is PUBLISH, there may follow on ARGV[3] only
--   nothing                if ARGV[4] is N
--   ''                     if ARGV[4] is '': a connection that, as far as its proxy knows, holds the lock
--   the registration       if ARGV[4] is OW, or OD: then the registration begins with -
--   NE, ARGV[9], ARGV[8]   if ARGV[4] is NE
-- If ARGV[5] is SPUBLISH or BOTH, and ARGV[4] is N, ARGV[5] alone may follow.
--
-- RETURNS 1          granted, with a count of 1 for the whole lease
--         n above 1  re-entered, with a count of n for the whole lease
--         {1, n, ttl in ms, 0, 1}  re-entered, with a count of n; the TTL was longer than the lease, and is kept
--         0          a named owner held the lock already, and holds it for the whole lease now
--         -16 - ttl  somebody else holds the lock for ttl ms more. Nothing is changed, so the not-after is not checked
--         -2         too late, nothing done

local call, lock, owner = redis.call, KEYS[1], ARGV[2]
local flags, registration, ttl = ARGV[4], ARGV[6], nil
if not flags then
  flags = 'N'
elseif not ARGV[5] and flags ~= '' then
  if flags == 'SPUBLISH' or flags == 'BOTH' or flags == 'PUBLISH' then
    ARGV[5] = flags
    flags = 'N'
  else
    registration = flags
    flags = 'OW'
  end
end
if flags == 'N' or flags == 'NE' then
  ttl = call('PTTL', lock)
  if ttl ~= -2 then
    if flags == 'N' then
      local seen = call('HMGET', lock, 'mode', owner)
      if not seen[1] and not seen[2] then return -16 - ttl end
    end
  elseif call('EXISTS', KEYS[2]) == 0 then
    local time = call('TIME')
    if time[1] >= ARGV[3] and time[1] * 1000000 + time[2] - ARGV[3] > 1000000 then return -2 end
    call('HSET', lock, owner, '1')
    call('PEXPIRE', lock, ARGV[1])
    return 1
  end
elseif flags == 'OW' or flags == 'OD' then
  local watch_key = KEYS[3]
  ttl = call('PTTL', lock)
  if registration == '' then
    -- A LOCK with EX or PX on a quorum has no registration: acquire goes on.
  elseif ttl ~= -2 then
    local seen = call('HMGET', lock, 'mode', owner)
    if seen[1] then
      -- A read/write lock: acquire goes on.
    elseif not seen[2] then
      return -16 - ttl
    elseif seen[2] == '1' and redis.pcall('GET', watch_key) == registration and ttl - ARGV[1] < 0 then
      local time = call('TIME')
      if time[1] >= ARGV[3] and time[1] * 1000000 + time[2] - ARGV[3] > 1000000 then return -2 end
      call('PEXPIRE', lock, ARGV[1])
      call('PEXPIRE', watch_key, ARGV[1])
      return 0
    end
  elseif call('EXISTS', KEYS[2], watch_key) == 0 then
    local time = call('TIME')
    if time[1] >= ARGV[3] and time[1] * 1000000 + time[2] - ARGV[3] > 1000000 then return -2 end
    call('HSET', lock, owner, '1')
    call('PEXPIRE', lock, ARGV[1])
    call('SET', watch_key, registration, 'PX', ARGV[1])
    return 1
  end
elseif flags == '' then
  local seen = call('HMGET', lock, 'mode', owner)
  local count = seen[2]
  if not seen[1] and (count == '1' or count == '2' or count == '3') then
    local greater = (redis.REDIS_VERSION_NUM or 0) >= 458752 -- PEXPIRE has GT since 7.0
    if greater or call('PTTL', lock) - ARGV[1] < 0 then
      local time = call('TIME')
      if time[1] >= ARGV[3] and time[1] * 1000000 + time[2] - ARGV[3] > 1000000 then return -2 end
      count = call('HINCRBY', lock, owner, '1')
      if greater and call('PEXPIRE', lock, ARGV[1], 'GT') == 0 then
        local ttl = call('PTTL', lock)
        if ttl ~= -1 then return {1, count, ttl, 0, 1} end
        greater = false
      end
      if not greater then call('PEXPIRE', lock, ARGV[1]) end
      return count
    end
  end
end

if not ARGV[7] then
  if flags == 'NE' then
    ARGV[8], ARGV[9] = ARGV[6], ARGV[5]
    ARGV[5], ARGV[6], ARGV[7] = 'PUBLISH', '', '0'
  elseif not ARGV[6] then
    if flags == 'OW' and string.sub(registration, 1, 1) == '-' then flags = 'OD' end
    ARGV[4], ARGV[5], ARGV[6], ARGV[7] = flags, ARGV[5] or 'PUBLISH', registration, '0'
  end
end
