-- rw is what the scripts of read/write locks share: it stands before each of them.
-- The format is Redisson's: the hash has `mode` read or write, a field OWNER with the number of its read holds, and a field OWNER:write
-- with the number of its write holds. Read hold i also has a key of its own, <prefix>:OWNER:rwlock_timeout:<i>, which lasts as long as its
-- lease. An owner without such a key no longer reads, whatever the hash says. lockproxy keeps the key of an owner's newest read hold only.

-- text returns a field's value, '' if it is longer than any that a lock has: a client may have written 60 MB there. nil: there is no such field.
local function text(lock, field)
  local length = redis.call('HSTRLEN', lock, field)
  if length > 9 then return '' end
  return redis.call('HGET', lock, field) or nil
end

-- counted returns the number of holds in a field, 0 if it is no number that a lock would have.
local function counted(value)
  if value and string.find(value, '^[1-9]%d*$') and #value <= 9 then return tonumber(value) end
  return 0
end

-- looks is how many keys of read holds this run of the script may still look at or delete, beside each owner's newest. It keeps a hash that
-- a client has written from blocking Redis.
local looks = 500

local function may_look()
  looks = looks - 1
  return looks >= 0
end

-- hold_key returns the key of one read hold.
local function hold_key(prefix, owner, number) return prefix .. ':' .. owner .. ':rwlock_timeout:' .. string.format('%.0f', number) end

-- reads returns for how many ms an owner still reads, by its newest read holds; 0: it does not.
local function reads(prefix, owner, count)
  local left = 0
  for i = count, math.max(1, count - 9), -1 do
    if i < count and not may_look() then break end
    left = math.max(left, redis.call('PTTL', hold_key(prefix, owner, i)))
  end
  return left
end

-- forget deletes the keys of an owner's read holds from one number down to another.
local function forget(prefix, owner, from, to)
  for i = from, to, -1 do
    if not may_look() then return end
    redis.call('DEL', hold_key(prefix, owner, i))
  end
end

-- set_reads lets an owner have that many read holds, of which Redis had so many before, for left ms more: 1 ms if they are over, since Redis
-- takes no less. With the count 0 it reads no more.
local function set_reads(lock, prefix, owner, count, before, left)
  if count > 0 then
    redis.call('HSET', lock, owner, string.format('%.0f', count))
    local newest = hold_key(prefix, owner, count)
    left = math.max(left, 1)
    if redis.call('PTTL', newest) < left then redis.call('SET', newest, '1', 'PX', left) end
  elseif before then
    redis.call('HDEL', lock, owner)
  end
  forget(prefix, owner, counted(before), count + 1)
end

-- few is up to how many other readers a reader looks at when it leaves, so that this costs the same with ten and with ten thousand.
local few = 32

-- others returns for how many ms anybody but one owner reads; nil: there are more readers than may be looked at.
local function others(lock, prefix, owner)
  if redis.call('HLEN', lock) > few + 2 then return nil end
  local left = 0
  for _, field in ipairs(redis.call('HKEYS', lock)) do
    if field ~= owner and field ~= 'mode' and string.sub(field, -6) ~= ':write' then
      left = math.max(left, reads(prefix, field, counted(text(lock, field))))
    end
  end
  return left
end

-- sweep takes readers whose leases are over out of a lock that is held for reading, until it finds one that reads. It returns whether
-- the lock is free then, and whether it had to stop before it knew.
local function sweep(lock, prefix, except)
  local cursor = '0'
  repeat
    local page = redis.call('HSCAN', lock, cursor, 'COUNT', 100)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      local field = page[2][i]
      if field ~= 'mode' then
        if not may_look() then return false, true end
        if field ~= except and reads(prefix, field, counted(page[2][i + 1])) > 0 then return false, false end
        redis.call('HDEL', lock, field)
      end
    end
  until cursor == '0'
  redis.call('DEL', lock)
  return true, false
end

-- alien returns whether the key holds something that is no read/write lock; mode is its field of that name.
local function alien(lock, mode)
  if mode then return mode ~= 'read' and mode ~= 'write' end
  return redis.call('EXISTS', lock) == 1
end
