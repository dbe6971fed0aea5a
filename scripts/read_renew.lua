-- read_renew is the watchdog's renewal of read holds: it extends those of many owners in one script, and shortens none. A key of a wrong
-- type does not keep the others from being renewed. Only the holds of these owners are extended, so that dead readers expire.
--
-- KEYS    for each owner the lock hash and the prefix of the keys of its read holds, and with W its registration
-- ARGV[1] lease in ms; 0 = only look whether the holds are there
-- ARGV[2] not-after minus one second, in µs of Redis' clock (see late.lua)
-- ARGV[3] letters, one for each owner: W a named owner whose registration is known, - any other
-- ARGV[4…] for each owner its hash field, and with W the registration that this proxy knows
-- RETURNS for each owner
--         1   extended, or seen
--         0   the hold is gone, or its registration's key has a wrong type
--         2   the registration is another one: the hold ended, or goes on, through another connection
--         -9  not known: there are more holds than one script may check
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
      redis.call('SET', newest, '1', 'PX', lease) -- the newest hold has expired, but one before it has not
    elseif left < lease then
      redis.call('PEXPIRE', newest, lease)
    end
    for i = count - 1, math.max(1, count - nested + 1), -1 do
      local hold = hold_key(holds, i)
      left = redis.call('PTTL', hold)
      if left >= 0 and left < lease then redis.call('PEXPIRE', hold, lease) end
    end
    if registered == unnamed then
      allow_writes(lock)
      redis.pcall('SET', watch_key, registration .. unnamed, 'PX', redis.call('PTTL', lock))
    elseif registered then -- it lasts as long as the lock, whose lease may be longer
      if redis.call('PTTL', watch_key) < lease then redis.call('PEXPIRE', watch_key, lease) end
    elseif watch_key then
      allow_writes(lock)
      redis.pcall('SET', watch_key, registration, 'PX', lease) -- Redis has evicted the registration
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
