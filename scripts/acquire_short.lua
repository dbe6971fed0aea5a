-- acquire_short is what acquire does first, before the functions that its other ways need are made: it takes a lock that nobody holds,
-- and in whose fair queue nobody stands, enters one that its owner has, and refuses one that somebody else holds.
-- KEYS and ARGV are those of acquire, or fewer, since each costs Redis as much time as a quarter of a command does. Where ARGV[5] is
-- PUBLISH there may follow on ARGV[3], whose meaning their number and words tell:
--   nothing                for N
--   ''                     for a connection that knows of a hold of its own
--   the registration       for OW, or OD where it begins with -
--   NE, ARGV[9], ARGV[8]   for NE
-- and where it is another one, it alone for N.
--
-- RETURNS 1          granted, with a count of 1 for the whole lease
--         n above 1  entered, with a count of n for the whole lease
--         0          a named owner has it, once, and now for the whole lease
--         -16 - ttl  held by somebody else for ttl in ms, and nothing done, were it too late or not
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
    -- On a node of a quorum.
  elseif ttl ~= -2 then
    local seen = call('HMGET', lock, 'mode', owner)
    if seen[1] then
      -- A lock of another kind.
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
