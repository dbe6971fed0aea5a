-- read_renew extends many owners' read holds in one go, and never shortens one: the watchdog. One key of a wrong type disturbs
-- no other. Only the owner's own holds are extended, so that readers that have died run out.
--
-- KEYS    for each owner the lock hash and what the keys of its holds begin with, followed by its registration when it is
--         an explicit one whose registration is known
-- ARGV[1] lease in ms; 0 = only look
-- ARGV[2] not-after in µs of Redis' clock, less a second
-- ARGV[3] letters, one for each owner: W it has a registration, - it has none
-- ARGV[4…] for each its hash field, followed by the registration when it has one
-- RETURNS for each 1 extended (or seen), 0 gone, or its registration is spoiled, 2 another connection has taken the registration over,
--         -9 there are more holds to look at than one script may,
--         or the one element -2: too late, nothing done

if late(ARGV[2]) then return {-2} end
local lease, letters = tonumber(ARGV[1]), ARGV[3]
local key, arg = 1, 4
local out = {}

local function extend(lock, holds, owner, watch_key, registration)
  if watch_key and elsewhere(watch_key, registration) == 1 then return 2 end
  local registered = watch_key and redis.pcall('GET', watch_key)
  if type(registered) == 'table' then return 0 end
  local seen = redis.pcall('HMGET', lock, 'mode', owner)
  if seen.err or not seen[1] then return 0 end
  local count = counted(seen[2])
  local there = reads(holds, count)
  if not there then return there == nil and -9 or 0 end
  if lease > 0 then
    outlast(lock, lease)
    local newest = hold_key(holds, count)
    local left = redis.call('PTTL', newest)
    if left < 0 then
      allow_writes(lock)
      redis.call('SET', newest, '1', 'PX', lease) -- one before it lasts longer
    elseif left < lease then
      redis.call('PEXPIRE', newest, lease)
    end
    for i = count - 1, math.max(1, count - nested + 1), -1 do
      local hold = hold_key(holds, i)
      left = redis.call('PTTL', hold)
      if left >= 0 and left < lease then redis.call('PEXPIRE', hold, lease) end
    end
    if registered then
      redis.call('PEXPIRE', watch_key, lease)
    elseif watch_key then
      allow_writes(lock)
      redis.pcall('SET', watch_key, registration, 'PX', lease) -- it was evicted
    end
  end
  return 1
end

for i = 1, #letters do
  local lock, holds, owner = KEYS[key], KEYS[key + 1], ARGV[arg]
  key, arg = key + 2, arg + 1
  local watch_key, registration
  if string.byte(letters, i) == 87 then
    watch_key, registration = KEYS[key], ARGV[arg]
    key, arg = key + 1, arg + 1
  end
  out[i] = extend(lock, holds, owner, watch_key, registration)
end
return out
