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
-- ARGV[4] how often it is to write: both are set. 1 in all makes the hold if it is not there, more do not. Of a named owner, which has the
--         side or not, ARGV[4] is 0, and ARGV[3] says what becomes of the lease of a hold that is there: lengthen, join or renew (see lease.lua)
-- ARGV[5] lease in ms, which shortens nothing, unless a named owner renews
-- ARGV[6] not-after in µs of Redis' clock; after it nothing is done
-- ARGV[7] 1 = a fencing token is wanted; '' = none
-- ARGV[8] prefix of the keys of all read holds
-- ARGV[9] the proxy that is to be woken if this is refused (see wake.lua), '' = none
-- ARGV[10] its place among those that are woken, 0 = none yet
-- ARGV[11] PUBLISH, SPUBLISH, or BOTH; '' = a reader that is granted the lock wakes nobody
-- RETURNS {1, made, ttl in ms, token or 0, expiry}  granted; made is 1 if the owner did not have that side, else 0; expiry, in ms since 1970,
--                                                   is a named owner's (see lease.lua), else 0
--         {0, 0, ttl in ms, place or 0, others}  held by somebody else; others is how many more wait elsewhere, proxies or JVMs
--         {-2, 0, 0, 0, 0}         too late, nothing done
--         {-3, 0, 0, 0, 0}         the key holds a lock of another kind
--         {-5, 0, 0, 0, 0}         the owner reads, and would wait for its own UNLOCK to write
--         {-6, 0, 0, 0, 0}         the hold that was to be taken once more has gone, nothing done
-- ERRORS  WRONGTYPE; ERR when the fencing token is not an integer below 2^53. Nothing is changed then.

-- include rw

local lock, reader, side, prefix = KEYS[1], ARGV[1], ARGV[2], ARGV[8]
local writer, writing = reader .. ':write', side == 'write'
local to_read, to_write, lease = tonumber(ARGV[3]) or 0, tonumber(ARGV[4]), tonumber(ARGV[5])
local named = to_read + to_write == 0
local mode, writes, before, left, ttl = look_at(lock, prefix, reader)
local reading = left > 0
if mode == 'other' then return {-3, 0, 0, 0, 0} end
if to_read + to_write > 1 then -- what the connection had must be there, on each side
  local had_reads, had_writes = to_read - (writing and 0 or 1), to_write - (writing and 1 or 0)
  if had_reads > 0 and not reading or had_writes > 0 and not writes then return {-6, 0, 0, 0, 0} end
end
local elsewhere = mode == 'write' and not writes
if elsewhere and ARGV[9] == '' then return {0, 0, ttl, 0, 0} end
-- include clock
if clock > tonumber(ARGV[6]) then return {-2, 0, 0, 0, 0} end
if elsewhere or mode == 'read' and writing then
  if not elsewhere and reading and (named or to_read > 0) then return {-5, 0, 0, 0, 0} end
  local free, unsure = false, false
  if not elsewhere then
    -- include rw_others
    free, unsure = sweep(lock, prefix, reader) -- a read hold of its own that a connection does not know was lost
    ttl = unsure and 1 or redis.call('PTTL', lock)
  end
  if not free then
    if ARGV[9] == '' then return {0, 0, ttl, 0, 0} end
    -- include wake writes
    allow_writes(lock)
    return {0, 0, ttl, await(KEYS, ARGV[9], tonumber(ARGV[10]), ARGV[11], KEYS[2])}
  end
  mode, before, left, ttl = 'free', 0, 0, -2
end

if mode ~= 'free' then
  -- include writes
  allow_writes(lock)
end
local token, refusal = 0, nil
if ARGV[7] ~= '' then
  -- include token
  token, refusal = next_token(KEYS[3])
  if not token then return refusal end
  redis.call('SET', KEYS[3], token)
end

if ARGV[9] ~= '' and ARGV[10] ~= '0' then
  -- include wake
  redis.pcall('ZREM', wakes_of(KEYS), ARGV[9])
  if not writing and ARGV[11] ~= '' and redis.call('EXISTS', wakes_of(KEYS)) == 1 then wake(ARGV[11], KEYS, KEYS[2], '0') end -- others may read beside it
end

local made = 1
if writing and writes or not writing and reading then made = 0 end
if named then
  -- include lease rw_reads
  local how, lasts, expiry = made == 1 and 'make' or ARGV[3], nil, nil
  if mode == 'free' then redis.call('HSET', lock, 'mode', side) end
  if writing then
    redis.call('HSET', lock, writer, '1')
    lasts, expiry = give_lease(lock, math.max(lease, left), how) -- its reading must not end with the hash
  else
    -- What it reads by keeps its expiry, which give_lease looks at: time goes on while a script runs (before Redis 7.2).
    local least = reading and left or lease
    if reading and before == 1 then least = 1 end
    set_reads(lock, prefix, reader, '1', before, least)
    lasts, expiry = give_lease(hold_key(prefix, reader, 1), lease, how)
    outlast(lock, lasts, expiry)
  end
  return {1, made, lasts, token, expiry}
end
if to_write > 0 then
  redis.call('HSET', lock, 'mode', 'write', writer, ARGV[4])
else
  if writes then redis.call('HDEL', lock, writer) end
  if mode ~= 'read' then redis.call('HSET', lock, 'mode', 'read') end
end
local lasts = left < lease and ARGV[5] or left
if to_read > 0 or before > 0 then
  -- include rw_reads
  set_reads(lock, prefix, reader, ARGV[3], before, lasts)
end
if ttl - lasts < 0 then
  redis.call('PEXPIRE', lock, lasts)
  ttl = lasts
end
return {1, made, tonumber(to_write > 0 and ttl or lasts), token, 0}
