-- read_last is what read_release does first, before the functions that its other ways need are made: it gives back the only hold of a
-- connection that nobody reads beside. KEYS and ARGV are those of read_release.
--
-- RETURNS 1   the lock is free
--         -2  too late, nothing done

if ARGV[4] == '' then
  local seen = redis.call('HMGET', KEYS[1], 'mode', ARGV[1])
  local hold = KEYS[2] .. ':1'
  if seen[1] == 'read' and seen[2] == '1' and redis.call('HLEN', KEYS[1]) == 2 and redis.call('PTTL', hold) > 0 then
    local time = redis.call('TIME')
    if time[1] * 1000000 + time[2] > tonumber(ARGV[3]) then return -2 end
    tell(ARGV[2], KEYS[3], '0')
    redis.call('DEL', KEYS[1])
    redis.call('DEL', hold)
    return 1
  end
end
