-- rw_extend is extend for a read/write lock.
--
-- KEYS[1] lock hash
-- ARGV[1] owner, its hash field as a reader; as a writer :write follows
-- ARGV[2] the side: read or write; both = what a connection has
-- ARGV[3…6] ARGV[2…5] of extend
-- ARGV[7] prefix of the keys of all read holds
-- RETURNS what extend returns
-- ERRORS  WRONGTYPE. Nothing is changed then.

local past, now = late(ARGV[4])
if past then return {-2, 0, 0} end
local lock, reader, side, lease, how, prefix = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[5], ARGV[7]
local mode = text(lock, 'mode')
if alien(lock, mode) then return {-3, 0, 0} end
local count = counted(mode and text(lock, reader))
local reads_on = reads(prefix, reader, count)
local reading = reads_on > 0
local writes = mode == 'write' and redis.call('HEXISTS', lock, reader .. ':write') == 1
local has = {read = reading, write = writes, both = reading or writes}
if not has[side] then return {-1, 0, 0} end

if how == 'set' then
  allow_writes(lock)
  if reading then
    redis.call('SET', hold_key(prefix, reader, count), '1', 'PX', lease)
    forget(prefix, reader, count - 1, 1)
  end
  local rest = writes and 0 or others(lock, prefix, reader)
  if rest then redis.call('PEXPIRE', lock, math.max(lease, rest)) else lengthen(lock, lease) end
  return {1, lease, 0}
end
local key = side == 'read' and hold_key(prefix, reader, count) or lock
if how == 'keep' and expires_at(key) ~= tonumber(ARGV[6]) then return {-1, 0, 0} end
if side == 'write' then lease = math.max(lease, reads_on) end -- its reading must not end with the hash
local expiry = extended(key, now, lease, how)
local left = expire(key, expiry, now)
if side == 'read' then
  local rest = not writes and others(lock, prefix, reader)
  if rest then
    redis.call('PEXPIRE', lock, math.max(left, rest))
  elseif redis.call('PTTL', lock) < left then
    expire(lock, 2 * math.floor(expiry / 2) + 1, now)
  end
end
return {1, left, expiry}
