-- read_extend sets the lease of one owner's read holds anew: the verb RENEW.
--
-- KEYS[1] lock hash
-- KEYS[2] what the keys of this owner's holds begin with, :<i> follows
-- KEYS[3] registration of a named owner, when ARGV[4] asks for it
-- ARGV[1] lease in ms
-- ARGV[2] owner, the hash field
-- ARGV[3] not-after in µs of Redis' clock, less a second
-- ARGV[4] letters: K keep a longer TTL, W a named owner's hold, R do nothing when there is a registration, neither ARGV[5] nor ARGV[6]: the
--         owner is back through another connection
-- ARGV[5] the new registration, '' = none
-- ARGV[6] the registration this proxy knows of
-- ARGV[7] the owner's field on the other side, unused
-- ARGV[8] what the keys of read holds begin with, before the owner
-- RETURNS {1, count, time in ms that this owner reads} done, {-1, 0, 0} it does not read, {-1, 1, 0} it ended through another connection,
--         {-2, 0, 0} too late, {0, 0, 0} letter R, {-3, 0, 0} a lock of another kind
-- ERRORS  WRONGTYPE. Nothing is changed then.

if late(ARGV[3]) then return {-2, 0, 0} end
local lock, holds, lease, owner, flags = KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[2], ARGV[4]
local watch_key = string.find(flags, 'W') and KEYS[3]
local seen = redis.call('HMGET', lock, 'mode', owner)
if alien(lock, seen[1]) then return {-3, 0, 0} end
local count = counted(seen[2])
local left = own(holds, count)
if left == 0 then return {-1, ended(watch_key), 0} end
if overruled(flags, watch_key, ARGV[5], ARGV[6]) then return {0, 0, 0} end

allow_writes(lock)
local keep = string.find(flags, 'K')
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
