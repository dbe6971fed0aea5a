-- rw_release sets how often an owner reads and writes in the read/write lock KEYS[1], or gives back one side: Redisson's read and write unlock
-- with a not-after. Unlike Redisson's, a writer that reads on publishes, for the readers that wait, and what is given back shortens no other
-- lease. It publishes before it deletes, so that nothing is changed if the service account may not publish. Like Redisson's it publishes also
-- when the lock has gone already, since no message has said that its lease had ended.
--
-- KEYS    those of rw_acquire
-- ARGV[1] owner, its hash field as a reader; as a writer :write follows
-- ARGV[2] the side that is given back, once or wholly: read or write; both = all that a connection has
-- ARGV[3] how often a connection is to read, and
-- ARGV[4] how often it is to write from now on: both are set. Both '': a named owner, which gives back that side
-- ARGV[5] not-after in µs of Redis' clock; after it nothing is done
-- ARGV[6] the expiry, in ms since 1970, that a named owner's side must have, or nothing is done: nobody has joined it then (see lease.lua);
--         '' = any
-- ARGV[7] PUBLISH, SPUBLISH, or BOTH; '' = publish nothing when this frees the lock, because a waiter gets it in the same script
-- ARGV[8] prefix of the keys of all read holds
-- ARGV[9] the proxy that gives it back, as one that is woken (see wake.lua), or ''
-- RETURNS 1  the owner no longer has that side
--         0  it still does
--         -1 it does not have that side, or not with that expiry; a connection has nothing, or not the side that it is to keep
--         -2 too late, nothing done
--         -3 the key holds a lock of another kind
-- ERRORS  WRONGTYPE. Nothing is changed then.

-- include clock wake rw rw_reads

local lock, reader, side, publish, prefix = KEYS[1], ARGV[1], ARGV[2], ARGV[7], ARGV[8]
if clock > tonumber(ARGV[5]) then return -2 end
local mode, writes, before, left = look_at(lock, prefix, reader)
if mode == 'other' then return -3 end
local reading, to_read, to_write = left > 0, ARGV[3], ARGV[4]
local there = has(side, reading, writes)
if to_read ~= '' then -- a side that a connection is to have no more may have been given back by a request whose reply was lost
  there = has('both', reading, writes) and (to_read == '0' or reading) and (to_write == '0' or writes)
end
if not there then
  local over = mode == 'free'
  if mode == 'read' and before > 0 and not reading then
    -- include rw_others
    over = others(lock, prefix, reader) == 0 -- the hash outlasts its readers
  end
  if over and publish ~= '' then wake(publish, KEYS, KEYS[2], side == 'read' and '0' or '1', ARGV[9]) end
  if over then redis.call('DEL', lock) end
  return -1
end
if ARGV[6] ~= '' then
  -- include lease
  local key = side == 'read' and hold_key(prefix, reader, 1) or lock
  if expires_at(key) ~= tonumber(ARGV[6]) then return -1 end
end

if to_read == '' then
  to_read = side == 'write' and reading and tostring(before) or '0'
  to_write = side == 'read' and writes and '1' or '0'
end
if to_read ~= '0' or to_write ~= '0' then
  -- include writes
  allow_writes(lock)
  if to_write ~= '0' then
    redis.call('HSET', lock, reader .. ':write', to_write)
  elseif writes then
    if publish ~= '' then wake(publish, KEYS, KEYS[2], '1', ARGV[9]) end
    redis.call('HDEL', lock, reader .. ':write')
    redis.call('HSET', lock, 'mode', 'read')
    redis.call('PEXPIRE', lock, math.max(left, 1)) -- nobody else reads beside a writer
  end
  set_reads(lock, prefix, reader, to_read, before, math.max(left, 1)) -- 1: Redis takes no less
else
  local rest = 0
  if not writes then
    -- include rw_others
    rest = others(lock, prefix, reader)
  end
  if rest == 0 then
    if publish ~= '' then wake(publish, KEYS, KEYS[2], writes and '1' or '0', ARGV[9]) end
    redis.call('DEL', lock)
  else
    redis.call('HDEL', lock, reader)
    if rest then redis.call('PEXPIRE', lock, rest) end
  end
  forget(prefix, reader, before, 1)
end
local remains = side == 'read' and to_read or side == 'write' and to_write or '0'
return remains == '0' and 1 or 0
