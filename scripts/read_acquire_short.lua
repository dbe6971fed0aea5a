-- read_acquire_short stands before read_acquire in the same script, as acquire_short does before acquire. For a connection without options
-- it takes a lock that is free or that others read, re-enters its only read hold, and refuses a lock that somebody else writes. In all
-- other cases read_acquire goes on. KEYS and ARGV are those of read_acquire. If ARGV[4] is M callers send no ARGV after it; if it is NM
-- they do not send it either.
--
-- RETURNS 1          granted, with a count of 1 for the whole lease
--         2          re-entered, with a count of 2 for the whole lease
--         -16 - ttl  somebody else writes for ttl ms more. Nothing is changed, so the not-after is not checked
--         -2         too late, nothing done

local call, lock, lease, flags = redis.call, KEYS[1], ARGV[1], ARGV[4] or 'NM'
if flags == 'NM' or flags == 'M' then
  local mode, count = call('HGET', lock, 'mode'), nil
  if not mode then
    if flags == 'NM' and call('EXISTS', lock) == 0 then
      local time = call('TIME')
      if time[1] >= ARGV[3] and time[1] * 1000000 + time[2] - ARGV[3] > 1000000 then return -2 end
      call('HSET', lock, 'mode', 'read', ARGV[2], '1')
      call('SET', KEYS[2] .. ':1', '1', 'PX', lease)
      call('PEXPIRE', lock, lease)
      return 1
    end
  elseif mode == 'write' and flags == 'NM' then
    return -16 - call('PTTL', lock)
  elseif mode == 'read' then
    local held = call('HGET', lock, ARGV[2])
    if not held then
      if flags == 'NM' then count = '1' end
    elseif held == '1' and flags == 'M' then
      local left = call('PTTL', KEYS[2] .. ':1')
      if left > 0 and left - lease <= 0 then count = '2' end
    end
  end
  if count then
    local time = call('TIME')
    if time[1] >= ARGV[3] and time[1] * 1000000 + time[2] - ARGV[3] > 1000000 then return -2 end
    call('HSET', lock, ARGV[2], count)
    call('SET', KEYS[2] .. ':' .. count, '1', 'PX', lease)
    if call('PTTL', lock) - lease < 0 then call('PEXPIRE', lock, lease) end
    return count == '1' and 1 or 2
  end
end
if not ARGV[5] then ARGV[4], ARGV[5], ARGV[6], ARGV[7] = flags, '', '0', ARGV[2] .. ':write' end
