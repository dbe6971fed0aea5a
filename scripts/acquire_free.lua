-- acquire_free is what acquire does first, before the functions that its other ways need are made: it takes a lock that nobody holds,
-- and in whose fair queue nobody stands, for a connection that asks for nothing besides. KEYS and ARGV are those of acquire.
--
-- RETURNS 1   granted, with a count of 1 for the whole lease
--         -2  too late, nothing done

if (ARGV[4] == 'N' or ARGV[4] == '') and redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then
  local time = redis.call('TIME')
  if time[1] * 1000000 + time[2] > tonumber(ARGV[3]) then return -2 end
  redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return 1
end
