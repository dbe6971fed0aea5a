-- renew_short stands before renew in the same script. It extends a single hold, as most renewals do; in all other cases renew goes on.
-- KEYS and ARGV are those of renew, but for a single hold callers leave out ARGV[3].
--
-- RETURNS 1 extended, 0 gone, -2 too late, nothing done

if not ARGV[5] then
  local call, lock, lease, owner, registration = redis.call, KEYS[1], ARGV[1], ARGV[3], ARGV[4]
  if lease ~= '0' and (not registration or redis.pcall('GET', KEYS[2]) == registration) then
    local time = call('TIME')
    if time[1] >= ARGV[2] and time[1] * 1000000 + time[2] - ARGV[2] > 1000000 then return -2 end
    local seen = redis.pcall('HMGET', lock, 'mode', owner)
    if not seen[2] or seen[1] and string.sub(owner, -6) ~= ':write' then return 0 end
    if (redis.REDIS_VERSION_NUM or 0) < 458752 then
      if call('PTTL', lock) - lease < 0 then call('PEXPIRE', lock, lease) end
      if registration and call('PTTL', KEYS[2]) - lease < 0 then call('PEXPIRE', KEYS[2], lease) end
      return 1
    end
    if call('PEXPIRE', lock, lease, 'GT') == 0 and call('PTTL', lock) == -1 then -- PEXPIRE has GT since 7.0
      call('PEXPIRE', lock, lease)
    end
    if registration then call('PEXPIRE', KEYS[2], lease, 'GT') end
    return 1
  end
  ARGV[3], ARGV[4], ARGV[5] = registration and 'W' or '-', owner, registration
end
