-- rw_force_owners is force_owners for a read/write lock. Of readers it makes those stop who read when FORCE began.
--
-- KEYS    those of rw_force
-- ARGV[1] number of owners
-- ARGV[2…] their fields in the lock's hash, then those of rw_force
-- RETURNS what rw_force returns, or 0 when nobody else than others has the lock
-- ERRORS  WRONGTYPE. Nothing is changed then.

local owners, known, args = tonumber(ARGV[1]), {}, {}
for i = 2, owners + 1 do known[ARGV[i]] = true end
for i = owners + 2, #ARGV do args[#args + 1] = ARGV[i] end
local lock, side, prefix = KEYS[1], args[3], args[4]
local mode = redis.call('HGET', lock, 'mode')
local all = mode and redis.call('HLEN', lock) <= looks and redis.call('HGETALL', lock) or {}
local others, ours = false, {}
for i = 1, #all, 2 do
  local owner = all[i]
  if owner == 'mode' then -- of the lock
  elseif known[owner] or known[owner .. ':write'] then ours[#ours + 1] = i
  elseif string.sub(owner, -6) == ':write' then others = true
  elseif reads(prefix .. ':' .. owner .. ':rwlock_timeout', counted(all[i + 1])) ~= false then others = true end
end
if not others then return force(KEYS, args) end
if late(args[2]) then return -2 end
if mode ~= 'read' or side == 'write' or #ours == 0 then return 0 end
for _, i in ipairs(ours) do
  redis.call('HDEL', lock, all[i])
  forget(prefix .. ':' .. all[i] .. ':rwlock_timeout', counted(all[i + 1]), 1)
end
return 1
