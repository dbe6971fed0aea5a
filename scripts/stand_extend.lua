-- stand_extend is RENEW on one node of a quorum: the extend script of the hold's kind. The attempt counts on the hold from then on.
--
-- KEYS[1] hash of the attempts that count on the hold (see stand.lua)
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
