-- read_free is what read_acquire does first, before the functions that its other ways need are made: it takes a lock that nobody holds,
-- for a connection that asks for nothing besides. KEYS and ARGV are those of read_acquire.
--
-- RETURNS 1   granted, with a count of 1 for the whole lease
--         -2  too late, nothing done

if not string.find(ARGV[4], '[OWD]') and redis.call('EXISTS', KEYS[1]) == 0 then
  local time = redis.call('TIME')
  if time[1] * 1000000 + time[2] > tonumber(ARGV[3]) then return -2 end
  redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[2], 1)
  redis.call('SET', KEYS[2] .. ':1', '1', 'PX', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return 1
end
