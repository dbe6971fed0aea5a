-- write_last is what write_release does first, before the functions that its other ways need are made: it gives back the only hold of a
-- connection that does not read, too. KEYS and ARGV are those of write_release.
--
-- RETURNS 1   the lock is free
--         -2  too late, nothing done

if ARGV[4] == '' then
  local seen = redis.call('HMGET', KEYS[1], 'mode', ARGV[1], ARGV[6])
  if seen[1] == 'write' and seen[2] == '1' and not seen[3] then
    local time = redis.call('TIME')
    if time[1] * 1000000 + time[2] > tonumber(ARGV[3]) then return -2 end
    tell(ARGV[2], KEYS[2], '1')
    redis.call('DEL', KEYS[1])
    return 1
  end
end
