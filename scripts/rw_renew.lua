-- rw_renew is renew for connections' read/write locks. Each side that a connection has is lengthened, and nobody else's, so that dead readers
-- expire.
--
-- KEYS    for each hold its lock hash
-- ARGV[1] not-after in µs of Redis' clock; after it nothing is done
-- ARGV[2…] for each hold its field as a reader, how often it reads and how often it writes, the lease in ms, and the prefix of the keys of
--         all read holds
-- RETURNS what renew returns; a hold has gone if one of the sides that the connection has is not there

-- include clock rw

if clock > tonumber(ARGV[1]) then return {-2} end
local out = {}
for i = 1, (#ARGV - 1) / 5 do
  local lock, at = KEYS[i], 5 * i - 3
  local reader, reading, writing, lease, prefix = ARGV[at], ARGV[at + 1] ~= '0', ARGV[at + 2] ~= '0', ARGV[at + 3], ARGV[at + 4]
  local known, _, writes, count, left, ttl = pcall(look_at, lock, prefix, reader)
  out[i] = 0
  if known and (left > 0 or not reading) and (writes or not writing) then
    if reading and left - lease < 0 then redis.call('PEXPIRE', hold_key(prefix, reader, count), lease) end
    if ttl - lease < 0 then redis.call('PEXPIRE', lock, lease) end
    out[i] = 1
  end
end
return out
