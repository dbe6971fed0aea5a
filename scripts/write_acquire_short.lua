-- write_acquire_short stands before write_acquire in the same script, as acquire_short does before acquire. For a connection without
-- options it takes a lock that is free, re-enters its only write hold, and refuses a lock that somebody else holds. In all other cases
-- write_acquire goes on. KEYS and ARGV are those of write_acquire. If ARGV[4] is M callers send no ARGV after it; if it is NM they do not
-- send it either.
--
-- RETURNS 1          granted, with a count of 1 for the whole lease
--         2          re-entered, with a count of 2 for the whole lease
--         -16 - ttl  somebody else holds the lock for ttl ms more. Nothing is changed, so the not-after is not checked
--         -2         too late, nothing done

local call, lock, lease, flags = redis.call, KEYS[1], ARGV[1], ARGV[4] or 'NM'
if flags == 'NM' or flags == 'M' then
  local mode = call('HGET', lock, 'mode')
  if flags == 'M' then
    if mode == 'write' and call('HGET', lock, ARGV[2]) == '1' and call('PTTL', lock) - lease < 0 then
      local time = call('TIME')
      if time[1] >= ARGV[3] and time[1] * 1000000 + time[2] - ARGV[3] > 1000000 then return -2 end
      call('HSET', lock, ARGV[2], '2')
      call('PEXPIRE', lock, lease)
      return 2
    end
  elseif mode == 'read' or mode == 'write' and call('HEXISTS', lock, ARGV[2]) == 0 then
    return -16 - call('PTTL', lock)
  elseif not mode and call('EXISTS', lock) == 0 then
    local time = call('TIME')
    if time[1] >= ARGV[3] and time[1] * 1000000 + time[2] - ARGV[3] > 1000000 then return -2 end
    call('HSET', lock, 'mode', 'write', ARGV[2], '1')
    call('PEXPIRE', lock, lease)
    return 1
  end
end
if not ARGV[5] then
  ARGV[4], ARGV[5], ARGV[6], ARGV[7] = flags, '', '0', string.sub(ARGV[2], 1, -7)
  ARGV[8] = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}' -- as Redisson's suffixName
end
