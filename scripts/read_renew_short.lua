-- read_renew_short stands before read_renew in the same script. It extends the only hold of one connection; in all other cases read_renew
-- goes on. KEYS and ARGV are those of read_renew, but for a single owner callers leave out ARGV[3].
--
-- RETURNS 1 extended, -2 too late, nothing done

if not ARGV[5] then
  local call, lock, lease, owner, registration = redis.call, KEYS[1], ARGV[1], ARGV[3], ARGV[4]
  local seen = lease ~= '0' and not registration and redis.pcall('HMGET', lock, 'mode', owner)
  if seen and seen[1] and seen[2] == '1' then
    local hold = KEYS[2] .. ':1'
    local left = call('PTTL', hold)
    if left > 0 then
      local time = call('TIME')
      if time[1] >= ARGV[2] and time[1] * 1000000 + time[2] - ARGV[2] > 1000000 then return -2 end
      if call('PTTL', lock) - lease < 0 then call('PEXPIRE', lock, lease) end
      if left - lease < 0 then call('PEXPIRE', hold, lease) end
      return 1
    end
  end
  ARGV[3], ARGV[4], ARGV[5] = registration and 'W' or '-', owner, registration
end
