-- renew is the watchdog's renewal of connections' plain locks, many in one script. It sets the lease: its proxy, which alone gives these
-- holds a lease, asks for no shorter one than it has been promised. A key of a wrong type does not keep the others from being renewed.
--
-- KEYS    for each hold its lock hash
-- ARGV[1] not-after in µs of Redis' clock; after it nothing is done
-- ARGV[2…] for each hold its owner, and the lease in ms
-- RETURNS for each hold 1 it is there, and lasts for the lease; 0 it has gone; or the one element -2: too late, nothing done

-- include clock

if clock > tonumber(ARGV[1]) then return {-2} end
local out, call, pcall = {}, redis.call, redis.pcall
for i, lock in ipairs(KEYS) do
  if pcall('HEXISTS', lock, ARGV[2 * i]) == 1 and call('HEXISTS', lock, 'mode') == 0 then
    call('PEXPIRE', lock, ARGV[2 * i + 1])
    out[i] = 1
  else
    out[i] = 0
  end
end
return out
