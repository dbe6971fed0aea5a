-- renew is the watchdog's renewal of connections' plain locks, many in one script. A key of a wrong type does not keep the others from being
-- renewed.
--
-- KEYS    for each hold its lock hash
-- ARGV[1] not-after in µs of Redis' clock; after it nothing is done
-- ARGV[2] set       the leases: none is shorter than was promised, nor than the time until the next renewal
--         lengthen  those that are shorter: a request that is late may come after a verb that has given more
-- ARGV[3…] for each hold its owner, and the lease in ms
-- RETURNS for each hold 1 it is there, and lasts for the lease; 0 it has gone; or the one element -2: too late, nothing done

-- include clock

if clock > tonumber(ARGV[1]) then return {-2} end
local out, call, pcall, set = {}, redis.call, redis.pcall, ARGV[2] == 'set'
for i, lock in ipairs(KEYS) do
  local owner, lease = ARGV[2 * i + 1], ARGV[2 * i + 2]
  if pcall('HEXISTS', lock, owner) == 1 and call('HEXISTS', lock, 'mode') == 0 then
    if set or call('PTTL', lock) - lease < 0 then call('PEXPIRE', lock, lease) end
    out[i] = 1
  else
    out[i] = 0
  end
end
return out
