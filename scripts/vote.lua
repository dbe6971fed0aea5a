-- vote asks one node of a quorum for some holds, each of them by the acquire script of its kind. Asked again for a hold that it has, the node
-- lengthens the lease, and says that the hold was there.
--
-- KEYS    for each hold those of the acquire
-- ARGV[1] 1: propose a fencing token. The node does not keep it: when the lock is won, raise.lua brings the highest one to a majority
-- ARGV[2…] for each hold those of the acquire
-- RETURNS for each hold what the acquire returns, with the proposed token; or, if one other owner alone holds the lock,
--         {0, 0, ttl in ms, a number made from that owner's name, by which the proxy sees on which nodes the owner is the same, 0}
-- ERRORS  those of the acquire, if there is one hold; ERR when the fencing token is not an integer below 2^53. Nothing is changed then.

-- include token

local out, holds, token = {}, #KEYS / 3, 0
if ARGV[1] == '1' then
  local refusal
  token, refusal = next_token(KEYS[3])
  if not token then return refusal end
end

-- holder returns a number made from the name of the only owner of a lock, 0 if there are several.
local function holder(lock)
  if redis.call('HLEN', lock) > 2 then return 0 end
  for _, field in ipairs(redis.call('HKEYS', lock)) do
    if field ~= 'mode' then return tonumber(string.sub(redis.sha1hex(field), 1, 12), 16) end
  end
  return 0
end

for i = 0, holds - 1 do
  local keys, args = {KEYS[3 * i + 1], KEYS[3 * i + 2], KEYS[3 * i + 3]}, {}
  for j = 1, acquire_args do args[j] = ARGV[1 + acquire_args * i + j] end
  local known, said = pcall(acquire, keys, args)
  if not known and holds == 1 then return redis.error_reply(type(said) == 'table' and said.err or said) end
  if not known or said.err then said = {-3, 0, 0, 0, 0} end
  if said[1] == 1 and token > 0 then said[4] = token end
  if said[1] == 0 then said[4] = holder(keys[1]) end
  for j = 1, 5 do out[5 * i + j] = said[j] end
end
return out
