-- late reads Redis' clock and checks a script's not-after.

-- clock returns Redis' clock in µs. It is read once for all that a run of the script does.
local read
local function clock()
  if not read then
    local time = redis.call('TIME')
    read = time[1] * 1000000 + time[2]
  end
  return read
end

-- late returns whether a not-after, in µs of Redis' clock, has passed.
local function late(not_after) return clock() > tonumber(not_after) end
