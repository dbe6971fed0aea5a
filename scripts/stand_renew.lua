-- stand_renew renews many holds on a node of a quorum: the renewal of their kind. The attempt that each owner's lock was had by counts
-- on the hold from then on, as it does on the other nodes: another attempt that takes itself back leaves the hold to it.
--
-- KEYS    for each hold the attempts that count on it, then those of the renewal
-- ARGV[1] number of holds
-- ARGV[2…] for each hold the attempt, '' = none, then those of the renewal
-- RETURNS what the renewal returns

local holds = tonumber(ARGV[1])
local keys, args = {}, {}
for i = holds + 1, #KEYS do keys[#keys + 1] = KEYS[i] end
for i = holds + 2, #ARGV do args[#args + 1] = ARGV[i] end
local out = renew(keys, args)
local lease = tonumber(args[1])
if lease > 0 and #out == holds then
  for i = 1, holds do
    if out[i] == 1 and ARGV[1 + i] ~= '' then stand(KEYS[i], ARGV[1 + i], lease, false) end
  end
end
return out
