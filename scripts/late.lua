-- late checks a script's not-after and reads Redis' clock. It stands before the scripts that have a not-after.
-- A not-after is sent in µs of Redis' clock, minus one second. The short scripts compare it with the seconds of TIME, both as strings. If
-- the seconds are lower the script is in time; the second subtracted makes up for the µs of TIME, which are left out. Only if they are not
-- lower is arithmetic needed, which takes longer.

-- clock returns Redis' clock in µs.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- late returns whether a not-after has passed, and Redis' clock in µs.
local function late(not_after)
  local now = clock()
  return now - not_after > 1000000, now
end
