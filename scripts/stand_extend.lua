-- stand_extend sets the lease of a hold on a node of a quorum: the extend of its kind. The attempt counts on the hold from then on.
--
-- KEYS[1] attempts that count on the hold
-- KEYS[2…] those of the extend
-- ARGV[1] the attempt, '' = none
-- ARGV[2…] those of the extend
-- RETURNS what the extend returns
-- ERRORS  those of the extend. Nothing is changed then.

local keys, args = {}, {}
for i = 2, #KEYS do keys[#keys + 1] = KEYS[i] end
for i = 2, #ARGV do args[#args + 1] = ARGV[i] end
local out = extend(keys, args)
if out[1] == 1 and ARGV[1] ~= '' then stand(KEYS[1], ARGV[1], out[3], false) end
return out
