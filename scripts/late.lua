-- late is how a script keeps its not-after, and what time it is: it stands before those that have one. A not-after is in µs of Redis'
-- clock, less a second. So the short scripts mostly see by the digits of Redis' second alone that they are in time, without numbers.

-- clock is Redis' clock in µs.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- late says whether a not-after has passed, and what Redis' clock says.
local function late(not_after)
  local now = clock()
  return now - not_after > 1000000, now
end
