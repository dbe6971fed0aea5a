-- renew is the watchdog's renewal of connections' plain locks: it lengthens many in one script, and shortens none. A key of a wrong type does
-- not keep the others from being renewed.
--
-- KEYS    for each hold its lock hash
-- ARGV[1] not-after in µs of Redis' clock; after it nothing is done
-- ARGV[2…] for each hold its owner, and the lease in ms
-- RETURNS for each hold 1 it is there, and lasts for the lease at least; 0 it has gone; or the one element -2: too late, nothing done

-- include clock

if clock > tonumber(ARGV[1]) then return {-2} end
local out, call, pcall = {}, redis.call, redis.pcall
for i, lock in ipairs(KEYS) do
  local owner, lease = ARGV[2 * i], ARGV[2 * i + 1]
  if pcall('HEXISTS', lock, owner) == 1 and call('HEXISTS', lock, 'mode') == 0 then
    if call('PTTL', lock) - lease < 0 then call('PEXPIRE', lock, lease) end
    out[i] = 1
  else
    out[i] = 0
  end
end
return out
