-- rw is what the scripts of read/write locks share: it stands before each of them.
-- The format is Redisson's: the hash has `mode` read or write, a field OWNER with the number of its read holds, and a field OWNER:write
-- with the number of its write holds. Read hold i also has a key of its own, <prefix>:OWNER:rwlock_timeout:<i>, which lasts as long as its
-- lease. An owner without such a key no longer reads, whatever the hash says.

-- counted returns the number of holds in a field, 0 if it is no number that a lock would have.
local function counted(value)
  if value and string.find(value, '^[1-9]%d*$') and #value <= 9 then return tonumber(value) end
  return 0
end

-- looks is how many more read holds this run of the script may check; own and reads check an owner's newest one in any case. No lock has
-- so many: the limit keeps a hash that a client has written from blocking Redis.
local looks = 5000

local function may_look()
  looks = looks - 1
  return looks >= 0
end

-- hold_key returns the key of one read hold. holds is <prefix>:OWNER:rwlock_timeout.
local function hold_key(holds, number) return holds .. ':' .. number end

-- own returns for how many ms one owner still reads, 0 if all its read holds have expired.
local function own(holds, count)
  local left = 0
  for i = count, 1, -1 do
    if i < count and not may_look() then break end
    left = math.max(left, redis.call('PTTL', hold_key(holds, i)))
  end
  return left
end

-- nested is how many of each owner's newest read holds are checked by a script that handles many owners.
local nested = 10

-- reads returns whether one owner still reads, nil if it may not check enough holds to know.
local function reads(holds, count)
  for i = count, 1, -1 do
    if i == count - nested or i < count and not may_look() then return nil end
    if redis.call('PTTL', hold_key(holds, i)) > 0 then return true end
  end
  return false
end

-- unseen returns for how many ms readers count that a script may not look at: as long as the hash lasts, or a day if it has no TTL.
local function unseen(lock)
  local left = redis.call('PTTL', lock)
  return left == -1 and 86400000 or math.max(0, left)
end

-- live returns for how many ms anybody but except still reads, 0 if nobody does. If it may not check all holds it returns at least
-- unseen, so that no live reader is taken for dead.
local function live(lock, prefix, except)
  if redis.call('HLEN', lock) > looks then return unseen(lock) end
  local left, all = 0, redis.call('HGETALL', lock)
  for i = 1, #all, 2 do
    local field = all[i]
    if field ~= except and field ~= 'mode' and string.sub(field, -6) ~= ':write' then
      local holds = prefix .. ':' .. field .. ':rwlock_timeout'
      for hold = counted(all[i + 1]), 1, -1 do
        if not may_look() then return math.max(left, unseen(lock)) end
        left = math.max(left, redis.call('PTTL', hold_key(holds, hold)))
      end
    end
  end
  return left
end

-- forget deletes the keys of an owner's holds from one number down to another.
local function forget(holds, from, to)
  for i = from, to, -1 do
    if not may_look() then return end
    redis.call('DEL', hold_key(holds, i))
  end
end

-- outlast extends the TTL of key to ttl ms, unless it is longer already, and returns the TTL.
local function outlast(key, ttl)
  local left = redis.call('PTTL', key)
  if left >= ttl then return left end
  redis.call('PEXPIRE', key, ttl)
  return ttl
end

-- alien returns whether the key holds something that is no read/write lock; mode is its field of that name.
local function alien(lock, mode)
  if mode then return mode ~= 'read' and mode ~= 'write' end
  return redis.call('EXISTS', lock) == 1
end
