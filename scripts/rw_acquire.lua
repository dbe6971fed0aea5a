-- rw_acquire takes one side of the read/write lock KEYS[1] for an owner, or takes it once more: Redisson's read and write acquire, plus a
-- not-after and a fencing token. An owner that writes may read as well. Unlike Redisson's, taking it once more never shortens a lease, and
-- does not add the new one to what is left.
--
-- KEYS[1] lock hash
-- KEYS[2] channel of the lock
-- KEYS[3] fencing token
-- ARGV[1] owner, its hash field as a reader; as a writer :write follows
-- ARGV[2] the side: read or write
-- ARGV[3] how often a connection is to read, and
-- ARGV[4] how often it is to write: both are set. 1 in all makes the hold if it is not there, more do not. Both 0: a named owner, which has
--         the side or not
-- ARGV[5] lease in ms, which shortens nothing
-- ARGV[6] not-after in µs of Redis' clock; after it nothing is done
-- ARGV[7] TTL of the fencing token in ms, 0 = none; '' = no token is wanted
-- ARGV[8] prefix of the keys of all read holds
-- RETURNS {1, made, ttl in ms, token or 0, expiry}  granted; made is 1 if the owner did not have that side, else 0; expiry, in ms since 1970,
--                                                   is a named owner's (see lease.lua), else 0
--         {0, 0, ttl in ms, 0, 0}  held by somebody else
--         {-2, 0, 0, 0, 0}         too late, nothing done
--         {-3, 0, 0, 0, 0}         the key holds a lock of another kind
--         {-5, 0, 0, 0, 0}         the owner reads, and would wait for its own UNLOCK to write
--         {-6, 0, 0, 0, 0}         the hold that was to be taken once more has gone, nothing done
-- ERRORS  WRONGTYPE; ERR when the fencing token is not an integer below 2^53. Nothing is changed then.

local past, now = late(ARGV[6])
if past then return {-2, 0, 0, 0, 0} end
local lock, reader, writing = KEYS[1], ARGV[1], ARGV[2] == 'write'
local to_read, to_write, lease, prefix = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[8]
local writer, named = reader .. ':write', to_read + to_write == 0
local mode = text(lock, 'mode')
if alien(lock, mode) then return {-3, 0, 0, 0, 0} end

local before = mode and text(lock, reader)
local left = reads(prefix, reader, counted(before))
local reading, writes = left > 0, mode == 'write' and redis.call('HEXISTS', lock, writer) == 1
if to_read + to_write > 1 then -- what the connection had must be there, on each side
  local had_reads, had_writes = to_read - (writing and 0 or 1), to_write - (writing and 1 or 0)
  if had_reads > 0 and not reading or had_writes > 0 and not writes then return {-6, 0, 0, 0, 0} end
end
if mode == 'write' and not writes then return {0, 0, redis.call('PTTL', lock), 0, 0} end
if mode == 'read' and writing then
  if reading and (named or to_read > 0) then return {-5, 0, 0, 0, 0} end
  local free, unsure = sweep(lock, prefix, reader) -- a read hold of its own that a connection does not know was lost
  if not free then return {0, 0, unsure and 1 or redis.call('PTTL', lock), 0, 0} end
  mode, before, left = nil, nil, 0
end

local token, refusal = 0, nil
if ARGV[7] ~= '' then
  token, refusal = next_token(KEYS[3], now)
  if not token then return refusal end
end
if mode then allow_writes(lock) end
if token > 0 then keep_token(KEYS[3], token, ARGV[7]) end
if not mode then redis.call('HSET', lock, 'mode', ARGV[2]) end

local made = 1
if writing and writes or not writing and reading then made = 0 end
if named and writing then
  local expiry = writes and joined(lock, now, lease) or even(now, lease)
  redis.call('HSET', lock, writer, '1')
  return {1, made, expire(lock, expiry, now), token, expiry}
elseif named then
  local hold = hold_key(prefix, reader, 1)
  local expiry = reading and joined(hold, now, lease) or even(now, lease)
  set_reads(lock, prefix, reader, 1, before, lease)
  left = expire(hold, expiry, now)
  if redis.call('PTTL', lock) < left then expire(lock, expiry + 1, now) end -- a writer that takes back its hold must not take this for its own
  return {1, made, left, token, expiry}
end
if to_write > 0 then
  redis.call('HSET', lock, writer, string.format('%.0f', to_write))
elseif writes then
  redis.call('HDEL', lock, writer)
  redis.call('HSET', lock, 'mode', 'read')
end
left = math.max(left, lease)
set_reads(lock, prefix, reader, to_read, before, left)
lengthen(lock, left)
if to_write > 0 then left = redis.call('PTTL', lock) end
return {1, made, left, token, 0}
