-- late reads Redis' clock and checks a script's not-after. It stands before the scripts that have one.

-- clock returns Redis' clock in µs.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- late returns whether a not-after, in µs of Redis' clock, has passed, and that clock.
local function late(not_after)
  local now = clock()
  return now > tonumber(not_after), now
end
