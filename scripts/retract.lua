-- retract takes back one attempt that did not win the lock, on one node of a quorum. When no other attempt counts on the hold, the release
-- script of its kind ends it. retract may run late, and twice. If the attempt is not noted (it is no longer told apart, was taken back
-- before, or never came), the hold belongs to others and stays.
--
-- KEYS[1] hash of the attempts that count on the hold (see stand.lua)
-- KEYS[2] registration of the owner
-- KEYS[3…] those of the release
-- ARGV[1] the attempt
-- ARGV[2] the registration that the attempt wrote, '' = none. If the hold stays, one without a name takes its place: whoever renews the hold
--         writes its own again, and who ends the hold elsewhere finds one to empty
-- ARGV[3…] those of the release, with a not-after that never passes
-- RETURNS {1, 0}  the hold has ended
--         {0, 1}  others count on it
--         {-1, 0} the owner has no hold there
--         {-3, 0} the key holds a lock of another kind
-- ERRORS  WRONGTYPE.

local noted = redis.pcall('HDEL', KEYS[1], ARGV[1])
if noted ~= 1 and redis.pcall('HEXISTS', KEYS[3], ARGV[3]) ~= 1 then return {-1, 0} end
if noted ~= 1 or redis.call('EXISTS', KEYS[1]) == 1 then
  local registered = redis.pcall('GET', KEYS[2])
  if names(registered, ARGV[2]) then redis.call('SET', KEYS[2], unnamed, 'KEEPTTL') end
  return {0, 1}
end
local keys, args = {}, {}
for i = 3, #KEYS do keys[#keys + 1] = KEYS[i] end
for i = 3, #ARGV do args[#args + 1] = ARGV[i] end
return release(keys, args)
