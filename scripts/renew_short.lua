-- renew_short is what renew does first: it extends one hold, which most renewals are about. KEYS and ARGV are those of renew.
--
-- RETURNS 1 extended, 0 gone, -2 too late, nothing done

if (ARGV[3] == '-' or ARGV[3] == 'W') and ARGV[1] ~= '0' then
  local call, lock, lease = redis.call, KEYS[1], ARGV[1]
  local watch_key = ARGV[3] == 'W' and KEYS[2]
  if not watch_key or redis.pcall('GET', watch_key) == ARGV[5] then
    local time = call('TIME')
    if time[1] >= ARGV[2] and time[1] * 1000000 + time[2] - ARGV[2] > 1000000 then return -2 end
    local seen = redis.pcall('HMGET', lock, 'mode', ARGV[4])
    if not seen[2] or seen[1] and string.sub(ARGV[4], -6) ~= ':write' then return 0 end
    if (redis.REDIS_VERSION_NUM or 0) < 458752 then
      if call('PTTL', lock) - lease < 0 then call('PEXPIRE', lock, lease) end
    elseif call('PEXPIRE', lock, lease, 'GT') == 0 and call('PTTL', lock) == -1 then -- GT is of 7.0
      call('PEXPIRE', lock, lease)
    end
    if watch_key then call('PEXPIRE', watch_key, lease) end
    return 1
  end
end
