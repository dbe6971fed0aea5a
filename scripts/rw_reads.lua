-- rw_reads changes what an owner reads (see rw.lua). Numbers come as text where ARGV has them so, since to make text of a number takes Redis as long
-- as a command.

-- has returns whether an owner that reads, or writes, has a side: read, write, or both = anything.
local function has(side, reading, writes)
  return side == 'read' and reading or side == 'write' and writes or side == 'both' and (reading or writes)
end

-- lengthen lets a key last for at least that long from now on.
local function lengthen(key, lease)
  if redis.call('PTTL', key) - lease < 0 then redis.call('PEXPIRE', key, lease) end
end

-- outlast lets the hash last as long as a named owner's read hold. It sets an odd expiry, so that no writer takes this for the even one that it has
-- set, and takes back its hold (see lease.lua).
local function outlast(lock, left, expiry)
  if redis.call('PTTL', lock) < left then redis.call('PEXPIREAT', lock, expiry + 1 - expiry % 2) end
end

-- forget deletes the keys of an owner's read holds from one number down to another.
local function forget(prefix, owner, from, to)
  for i = from, to, -1 do
    if not may_look() then return end
    redis.call('DEL', hold_key(prefix, owner, i))
  end
end

-- set_reads lets an owner have that many read holds, of which its field counts so many before, for at least that many ms more. With the count 0
-- it reads no more.
local function set_reads(lock, prefix, owner, count, before, left)
  if count ~= '0' then
    redis.call('HSET', lock, owner, count)
    local newest = hold_key(prefix, owner, count)
    if redis.call('PTTL', newest) - left < 0 then redis.call('SET', newest, '1', 'PX', left) end
  elseif before > 0 then
    redis.call('HDEL', lock, owner)
  end
  forget(prefix, owner, before, count + 1)
end
