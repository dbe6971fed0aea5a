-- renew extends many holds in one go, and never shortens one: the watchdog. One key of a wrong type disturbs no other.
-- The holds are plain ones, or write holds, whose fields end in :write and stand beside a mode; those of readers are another's.
--
-- KEYS    for each hold its lock hash, followed by its registration when the hold is an explicit owner's whose registration is known
-- ARGV[1] lease in ms; 0 = only look
-- ARGV[2] not-after in µs of Redis' clock, less a second
-- ARGV[3] letters, one for each hold: W it has a registration, - it has none
-- ARGV[4…] for each hold its owner, followed by the registration when it has one
-- RETURNS for each hold 1 extended (or seen), 0 gone, or its registration is spoiled, 2 another connection has taken the registration over,
--         or the one element -2: too late, nothing done

local call, pcall = redis.call, redis.pcall
if late(ARGV[2]) then return {-2} end

local lease, letters = ARGV[1], ARGV[3]
local extends, greater = lease ~= '0', (redis.REDIS_VERSION_NUM or 0) >= 458752 -- PEXPIRE has GT since 7.0
local registrations = string.find(letters, 'W', 1, true)
local key, arg = 1, 4
local out = {}
for i = 1, #letters do
  local lock, owner = KEYS[key], ARGV[arg]
  key, arg = key + 1, arg + 1
  local watch_key, registration, registered
  if registrations and string.byte(letters, i) == 87 then
    watch_key, registration = KEYS[key], ARGV[arg]
    key, arg = key + 1, arg + 1
    registered = pcall('GET', watch_key)
  end
  local seen = pcall('HMGET', lock, 'mode', owner)
  local there = not seen.err and seen[2] and (not seen[1] or string.sub(owner, -6) == ':write')
  if watch_key and type(registered) == 'string' and registered ~= registration and registered ~= registration .. '+' then
    out[i] = 2
  elseif not there or watch_key and type(registered) == 'table' then
    out[i] = 0
  else
    out[i] = 1
    if extends then
      if not greater then
        if call('PTTL', lock) - lease < 0 then call('PEXPIRE', lock, lease) end
      elseif call('PEXPIRE', lock, lease, 'GT') == 0 and call('PTTL', lock) == -1 then
        call('PEXPIRE', lock, lease)
      end
      if registered then
        call('PEXPIRE', watch_key, lease)
      elseif watch_key then
        allow_writes(lock)
        pcall('SET', watch_key, registration, 'PX', lease) -- it was evicted
      end
    end
  end
end
return out
