-- pass does the common cases of handoff with fewer KEYS and ARGV: it gives back an owner's last hold of a plain lock, and grants the lock
-- to one other owner. Both are connections without options, or both are named owners. The fair queue is empty, or the next owner is a
-- connection and the first in it.
--
-- KEYS[1] lock hash
-- KEYS[2] its fair queue
--         then, for named owners: the registrations of the owner and of the next owner
-- ARGV[1] owner, the hash field
-- ARGV[2] the next owner
-- ARGV[3] the next owner's lease in ms
-- ARGV[4] not-after minus one second, in µs of Redis' clock (see late.lua)
--         then, for named owners: the registration that this proxy knows of the owner, and the new one of the next owner
-- RETURNS 1 given back and granted for the whole lease, 0 nothing was done, and handoff must be run, -2 too late, nothing done

local call, lock, registration, first = redis.call, KEYS[1], ARGV[6], nil
local seen = call('HMGET', lock, 'mode', ARGV[1])
if not seen[2] or seen[1] then return 0 end
if not registration then
  if seen[2] ~= '1' then return 0 end
  first = redis.pcall('LINDEX', KEYS[2], 0)
  if first and first ~= ARGV[2] then return 0 end
elseif call('EXISTS', KEYS[2], KEYS[4]) > 0 or redis.pcall('GET', KEYS[3]) ~= ARGV[5] then
  return 0
end
local time = call('TIME')
if time[1] >= ARGV[4] and time[1] * 1000000 + time[2] - ARGV[4] > 1000000 then return -2 end
if first then
  local beside = string.sub(KEYS[2], 20)
  local tickets = 'lockproxy_fair' .. beside
  local known = call('HLEN', tickets) -- if this key has another type the script fails here, before it changes anything
  call('ZREM', 'redisson_lock_timeout' .. beside, first)
  call('LPOP', KEYS[2])
  if known - call('HDEL', tickets, first) == 1 then call('DEL', tickets) end
end
call('DEL', lock)
if registration then call('DEL', KEYS[3]) end
call('HSET', lock, ARGV[2], '1')
call('PEXPIRE', lock, ARGV[3])
if registration then call('SET', KEYS[4], registration, 'PX', ARGV[3]) end
return 1
