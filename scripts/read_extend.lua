-- read_extend sets a new lease for one owner's read holds, which may be shorter: the verb RENEW.
--
-- KEYS[1] lock hash
-- KEYS[2] prefix of the keys of this owner's read holds, :<i> follows
-- KEYS[3] with W: registration of the named owner
-- ARGV[1] lease in ms
-- ARGV[2] owner, the hash field
-- ARGV[3] not-after minus one second, in µs of Redis' clock (see late.lua)
-- ARGV[4] letters:
--         K  keep a TTL that is longer
--         W  a named owner's hold
--         R  do nothing if the owner may since have sent a command through another connection: there is a registration whose name
--            is neither ARGV[5] nor ARGV[6], or one of these with a + while the hold would be shortened
-- ARGV[5] the new registration, '' = none
-- ARGV[6] the registration that this proxy knows
-- ARGV[7] the owner's field as a writer, unused
-- ARGV[8] prefix of the keys of all read holds, before the owner
-- RETURNS {1, count, time in ms that this owner reads} done
--         {0, 0, 0}      nothing was done, because of R
--         {-1, ended, 0} the owner does not read; ended is 1 if it gave the lock back through another connection, else 0
--         {-2, 0, 0}     too late, nothing done
--         {-3, 0, 0}     the key holds a lock of another kind
-- ERRORS  WRONGTYPE. Nothing is changed then.

if late(ARGV[3]) then return {-2, 0, 0} end
local lock, holds, lease, owner, flags = KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[2], ARGV[4]
local watch_key = string.find(flags, 'W') and KEYS[3]
local seen = redis.call('HMGET', lock, 'mode', owner)
if alien(lock, seen[1]) then return {-3, 0, 0} end
local count = counted(seen[2])
local left = own(holds, count)
if left == 0 then return {-1, ended(watch_key), 0} end
local keep = string.find(flags, 'K')
if overruled(flags, watch_key, ARGV[5], ARGV[6], not keep and left > lease) then return {0, 0, 0} end

allow_writes(lock)
if not keep then left = 0 end
left = math.max(left, lease)
local newest = hold_key(holds, count)
if not keep or redis.call('PTTL', newest) < lease then redis.call('SET', newest, '1', 'PX', lease) end
for i = count - 1, 1, -1 do
  if not may_look() then break end
  local hold = hold_key(holds, i)
  local its = redis.call('PTTL', hold)
  if its >= 0 and (its < lease or not keep) then redis.call('PEXPIRE', hold, lease) end
end
if keep or seen[1] == 'write' then
  outlast(lock, left)
else
  redis.call('PEXPIRE', lock, math.max(left, live(lock, ARGV[8], owner)))
end

if watch_key then rename(watch_key, ARGV[5], left, ARGV[6]) end
return {1, count, left}
