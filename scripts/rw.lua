-- rw is what the scripts of read/write locks share: it stands before each of them.
-- A lock is Redisson's: the hash has `mode` read or write, a field OWNER with the number of its read holds, a field
-- OWNER:write with the number of its write holds. Hold i of a reader has a key of its own, <prefix>:OWNER:rwlock_timeout:<i>,
-- which lasts as long as that hold: a reader without one is over, whatever the hash says.

-- counted is the number of holds that a field tells, 0 when it is no number that a lock would have.
local function counted(value)
  if value and string.find(value, '^[1-9]%d*$') and #value <= 9 then return tonumber(value) end
  return 0
end

-- looks is at how many holds one run of a script still looks, beside the newest one of each owner: what somebody wrote into a hash
-- does not stop Redis for long. No lock has as many.
local looks = 5000

local function may_look()
  looks = looks - 1
  return looks >= 0
end

-- hold_key is the key of a reader's hold. holds is <prefix>:OWNER:rwlock_timeout.
local function hold_key(holds, number) return holds .. ':' .. number end

-- own is for how long in ms one reader still reads, 0 when all its holds are over.
local function own(holds, count)
  local left = 0
  for i = count, 1, -1 do
    if i < count and not may_look() then break end
    left = math.max(left, redis.call('PTTL', hold_key(holds, i)))
  end
  return left
end

-- nested is how many of one reader's newest holds a script looks at that is about many readers.
local nested = 10

-- reads says whether one reader still reads. It is nothing when there is more to look at than may be.
local function reads(holds, count)
  for i = count, 1, -1 do
    if i == count - nested or i < count and not may_look() then return nil end
    if redis.call('PTTL', hold_key(holds, i)) > 0 then return true end
  end
  return false
end

-- live is for how long in ms anybody but except still reads, 0 when nobody does. When the hash tells of more holds than it looks at,
-- somebody may read for as long as the hash is there.
local function live(lock, prefix, except)
  if redis.call('HLEN', lock) > looks then return math.max(0, redis.call('PTTL', lock)) end
  local left, all = 0, redis.call('HGETALL', lock)
  for i = 1, #all, 2 do
    local field = all[i]
    if field ~= except and field ~= 'mode' and string.sub(field, -6) ~= ':write' then
      local holds = prefix .. ':' .. field .. ':rwlock_timeout'
      for hold = counted(all[i + 1]), 1, -1 do
        if not may_look() then return math.max(left, redis.call('PTTL', lock)) end
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

-- outlast gives key at least ttl ms.
local function outlast(key, ttl)
  local left = redis.call('PTTL', key)
  if left >= ttl then return left end
  redis.call('PEXPIRE', key, ttl)
  return ttl
end

-- alien says whether the key holds something that is no read/write lock; mode is its field of that name.
local function alien(lock, mode)
  if mode then return mode ~= 'read' and mode ~= 'write' end
  return redis.call('EXISTS', lock) == 1
end
