-- look reads what Redis has of one owner's hold, on either side.
--
-- KEYS[1] lock hash
-- ARGV[1] owner of a plain lock, the hash field
-- ARGV[2] its field as a reader; as a writer :write follows
-- ARGV[3] prefix of the keys of all read holds
-- ARGV[4] owner of one of the places of a lock that several may hold
-- RETURNS {1 if the owner has the plain lock, 1 if it writes, 1 if it reads, 1 if it has a place}; else 0

-- include clock rw limit

local lock, plain = KEYS[1], 0
local known, mode, writes, _, left = pcall(look_at, lock, ARGV[3], ARGV[2])
if not known or mode == 'free' then -- no hash
  local is, at = pcall(place_of, ends_of(lock), ARGV[4])
  return {0, 0, 0, is and at and 1 or 0}
end
if mode == 'other' and redis.call('HEXISTS', lock, 'mode') == 0 then plain = redis.call('HEXISTS', lock, ARGV[1]) end
return {plain, writes and 1 or 0, left > 0 and 1 or 0, 0}
