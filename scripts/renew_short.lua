-- renew_short is what renew does first: it extends the hold of one connection, which most renewals are about. KEYS and ARGV are those of
-- renew.
--
-- RETURNS 1 extended, 0 gone, -2 too late, nothing done

if ARGV[3] == '-' and ARGV[1] ~= '0' then
  local call, lock = redis.call, KEYS[1]
  local time = call('TIME')
  if (time[1] + 1) * 1000000 - ARGV[2] > 0 and time[1] * 1000000 + time[2] - ARGV[2] > 0 then return -2 end
  local seen = redis.pcall('HMGET', lock, 'mode', ARGV[4])
  if not seen[2] or seen[1] and string.sub(ARGV[4], -6) ~= ':write' then return 0 end
  if call('PTTL', lock) - ARGV[1] < 0 then call('PEXPIRE', lock, ARGV[1]) end
  return 1
end
