-- rw is what the scripts of read/write locks share.
-- The format is Redisson's: the hash has `mode` read or write, a field OWNER with the number of its read holds, and a field OWNER:write
-- with the number of its write holds. Read hold i also has a key of its own, <prefix>:OWNER:rwlock_timeout:<i>, which lasts as long as its
-- lease. An owner without such a key no longer reads, whatever the hash says. lockproxy keeps the key of an owner's newest read hold only.

-- text returns a field's value, '' if it is longer than any that a lock has: a client may have written 60 MB there. nil: there is no such
-- field, or it is empty.
local function text(lock, field)
  local length = redis.call('HSTRLEN', lock, field)
  if length == 0 then return nil end
  if length > 9 then return '' end
  return redis.call('HGET', lock, field)
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

-- hold_key returns the key of one read hold; number is below 10^9.
local function hold_key(prefix, owner, number) return prefix .. ':' .. owner .. ':rwlock_timeout:' .. number end

-- reads returns for how many ms an owner still reads, by its newest read holds; 0: it does not.
local function reads(prefix, owner, count)
  local left = 0
  for i = count, math.max(1, count - 9), -1 do
    if i < count and not may_look() then break end
    left = math.max(left, redis.call('PTTL', hold_key(prefix, owner, i)))
  end
  return left
end

-- mode_of returns the mode of a lock: read, write, free, or other if the key holds something else; and its TTL in ms.
local function mode_of(lock)
  local ttl = redis.call('PTTL', lock)
  if ttl == -2 then return 'free', ttl end
  local mode = text(lock, 'mode')
  if mode == 'read' or mode == 'write' then return mode, ttl end
  return 'other', ttl
end

-- look_at returns the mode of a lock; then what one owner has: whether it writes, how many read holds its field counts, and for how many ms it
-- reads; then the TTL of the lock.
local function look_at(lock, prefix, reader)
  local mode, ttl = mode_of(lock)
  local writes = mode == 'write' and redis.call('HEXISTS', lock, reader .. ':write') == 1
  if mode ~= 'read' and not writes then return mode, false, 0, 0, ttl end -- nobody reads beside another's write
  local count = counted(text(lock, reader))
  return mode, writes, count, reads(prefix, reader, count), ttl
end
