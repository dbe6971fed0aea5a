-- force_owners frees a plain lock on one node of a quorum, by the force script, unless somebody else has it than those who had it when FORCE
-- began.
--
-- KEYS    those of force
-- ARGV[1] number of owners
-- ARGV[2…] their fields in the lock's hash, then those of force
-- RETURNS what force returns, or 0 when somebody else has the lock
-- ERRORS  WRONGTYPE. Nothing is changed then.

local owners, known, args = tonumber(ARGV[1]), {}, {}
for i = 2, owners + 1 do known[ARGV[i]] = true end
for i = owners + 2, #ARGV do args[#args + 1] = ARGV[i] end
if redis.call('HLEN', KEYS[1]) == 1 and not known[redis.call('HKEYS', KEYS[1])[1]] then return 0 end
return force(KEYS, args)
