-- rw_extend is extend for a read/write lock.
--
-- KEYS[1] lock hash
-- ARGV[1] owner, its hash field as a reader; as a writer :write follows
-- ARGV[2] the side: read or write; both = what a connection has
-- ARGV[3…6] ARGV[2…5] of extend
-- ARGV[7] prefix of the keys of all read holds
-- RETURNS what extend returns
-- ERRORS  WRONGTYPE. Nothing is changed then.

-- include clock rw rw_reads

local lock, reader, side, lease, how, prefix = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[5], ARGV[7]
if clock > tonumber(ARGV[4]) then return {-2, 0, 0} end
local mode, writes, count, left = look_at(lock, prefix, reader)
local reading = left > 0
if mode == 'other' then return {-3, 0, 0} end
if not has(side, reading, writes) then return {-1, 0, 0} end

if how == 'set' then
  -- include writes rw_others
  allow_writes(lock)
  if reading then
    redis.call('SET', hold_key(prefix, reader, count), '1', 'PX', ARGV[3])
    forget(prefix, reader, count - 1, 1)
  end
  local rest = writes and 0 or others(lock, prefix, reader)
  if rest then redis.call('PEXPIRE', lock, math.max(lease, rest)) else lengthen(lock, lease) end
  return {1, lease, 0}
end
-- include lease rw_others
local key, expiry = side == 'read' and hold_key(prefix, reader, count) or lock, nil
if how == 'keep' and expires_at(key) ~= tonumber(ARGV[6]) then return {-1, 0, 0} end
if side == 'write' then lease = math.max(lease, left) end -- its reading must not end with the hash
left, expiry = give_lease(key, lease, how)
if side == 'read' then
  local rest = not writes and others(lock, prefix, reader)
  if rest then
    redis.call('PEXPIRE', lock, math.max(left, rest))
  else
    outlast(lock, left, expiry)
  end
end
return {1, left, expiry}
