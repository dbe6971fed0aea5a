-- rw_renew is renew for connections' read/write locks. Each side that a connection has is lengthened, and nobody else's, so that dead readers
-- expire.
--
-- KEYS    for each hold its lock hash
-- ARGV[1] not-after in µs of Redis' clock; after it nothing is done
-- ARGV[2…] for each hold its field as a reader, how often it reads and how often it writes, the lease in ms, and the prefix of the keys of
--         all read holds
-- RETURNS what renew returns; a hold has gone if one of the sides that the connection has is not there

if late(ARGV[1]) then return {-2} end
local out = {}
for i = 1, (#ARGV - 1) / 5 do
  local lock, at = KEYS[i], 5 * i - 3
  local reader, to_read, to_write, lease, prefix = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), ARGV[at + 4]
  local known, mode = pcall(text, lock, 'mode')
  local before = known and mode and text(lock, reader)
  local reading = to_read == 0 or reads(prefix, reader, counted(before)) > 0
  local writes = to_write == 0 or mode == 'write' and redis.call('HEXISTS', lock, reader .. ':write') == 1
  out[i] = 0
  if known and mode and reading and writes then
    allow_writes(lock)
    if to_read > 0 then set_reads(lock, prefix, reader, to_read, before, lease) end
    lengthen(lock, lease)
    out[i] = 1
  end
end
return out
