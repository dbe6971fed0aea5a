-- stand_renew is the watchdog's renewal on one node of a quorum: the renew script of the holds' kind. The attempt by which an owner got its
-- lock counts on the hold here from then on, as on the other nodes, so that the hold stays when another attempt is taken back.
--
-- KEYS    for each hold the hash of the attempts that count on it (see stand.lua), then those of the renewal
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
