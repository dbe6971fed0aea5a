-- renew is the watchdog's renewal of plain and of write holds: it extends many in one script, and shortens none. A key of a wrong type does
-- not keep the others from being renewed. A write hold's field ends in :write, in a hash with a mode; read holds are left to read_renew.
--
-- KEYS    for each hold its lock hash, and with W its registration
-- ARGV[1] lease in ms; 0 = only look whether the holds are there
-- ARGV[2] not-after minus one second, in µs of Redis' clock (see late.lua)
-- ARGV[3] letters, one for each hold: W a named owner's whose registration is known, - any other
-- ARGV[4…] for each hold its hash field, and with W the registration that this proxy knows
-- RETURNS for each hold
--         1  extended, or seen
--         0  it is gone, or its registration's key has a wrong type
--         2  the registration is another one: the hold ended, or goes on, through another connection
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
  if watch_key and type(registered) == 'string' and registered ~= registration and registered ~= unnamed and not names(registered, registration) then
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
      if registered == unnamed then
        allow_writes(lock)
        pcall('SET', watch_key, registration .. unnamed, 'PX', call('PTTL', lock))
      elseif registered then -- it lasts as long as the lock, whose lease may be longer
        if greater then call('PEXPIRE', watch_key, lease, 'GT')
        elseif call('PTTL', watch_key) - lease < 0 then call('PEXPIRE', watch_key, lease) end
      elseif watch_key then
        allow_writes(lock)
        pcall('SET', watch_key, registration, 'PX', lease) -- Redis has evicted the registration
      end
    end
  end
end
return out
