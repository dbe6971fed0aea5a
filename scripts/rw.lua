-- rw is what the scripts of read/write locks share: it stands before each of them.
-- A lock is Redisson's: the hash has `mode` read or write, a field OWNER with the number of its read holds, a field
-- OWNER:write with the number of its write holds. Hold i of a reader has a key of its own, <prefix>:OWNER:rwlock_timeout:<i>,
-- which lasts as long as that hold: a reader without one is over, whatever the hash says.

-- late says whether a not-after, in µs of Redis' clock, has passed.
local function late(not_after)
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2] > tonumber(not_after)
end

-- counted is the number of holds that a field tells, 0 when it is no number that a lock would have.
local function counted(value)
  if value and string.find(value, '^[1-9]%d*$') and #value <= 15 then return tonumber(value) end
  return 0
end

-- first is where to begin with the holds up to count: what somebody wrote into a field does not stop Redis for long.
local function first(from, count) return math.max(from, count - 9999) end

-- own is for how long in ms one reader still reads, 0 when all its holds are over. holds is <prefix>:OWNER:rwlock_timeout.
local function own(holds, count)
  local left = 0
  for i = count, first(1, count), -1 do left = math.max(left, redis.call('PTTL', holds .. ':' .. i)) end
  return left
end

-- live is for how long in ms anybody but except still reads, 0 when nobody does.
local function live(lock, prefix, except)
  local left, all = 0, redis.call('HGETALL', lock)
  for i = 1, #all, 2 do
    if all[i] ~= except and all[i] ~= 'mode' and string.sub(all[i], -6) ~= ':write' then
      left = math.max(left, own(prefix .. ':' .. all[i] .. ':rwlock_timeout', counted(all[i + 1])))
    end
  end
  return left
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

-- register notes who watches an explicit owner's hold. A plus: it took another's place, whose proxy has to be told when this one ends.
local function register(watch_key, registration, ttl)
  local present = redis.pcall('GET', watch_key)
  if present and present ~= registration then registration = registration .. '+' end
  redis.call('SET', watch_key, registration, 'PX', ttl)
end

-- unregister ends that: known, our own, is deleted; another one is emptied, which tells its proxy that the hold has ended.
local function unregister(watch_key, known)
  if known ~= '' and redis.pcall('GET', watch_key) == known then
    redis.call('DEL', watch_key)
  else
    redis.call('SET', watch_key, '', 'XX', 'KEEPTTL')
  end
end

-- elsewhere is 1 when the registration says that the hold ended, or lives, through another connection than the known one.
local function elsewhere(watch_key, known)
  local registered = watch_key and redis.pcall('GET', watch_key)
  if type(registered) == 'string' and registered ~= known and registered ~= known .. '+' then return 1 end
  return 0
end
