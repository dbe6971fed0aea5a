-- release_last is what release does first, before the functions that its other ways need are made: it gives back the only hold of a
-- connection, of a lock in whose fair queue nobody stands. KEYS and ARGV are those of release.
--
-- RETURNS 1   the lock is free
--         -2  too late, nothing done

if ARGV[4] == '' then
  local seen = redis.call('HMGET', KEYS[1], 'mode', ARGV[1])
  if seen[2] == '1' and not seen[1] and redis.call('EXISTS', KEYS[2]) == 0 then
    local time = redis.call('TIME')
    if time[1] * 1000000 + time[2] > tonumber(ARGV[3]) then return -2 end
    tell(ARGV[2], 'redisson_lock__channel' .. string.sub(KEYS[2], 20), '0')
    redis.call('DEL', KEYS[1])
    return 1
  end
end
