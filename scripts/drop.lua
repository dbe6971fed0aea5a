-- drop gives back an owner's hold on a node of a quorum, whichever attempts count on it: the release of its kind.
--
-- KEYS[1] attempts that count on the hold
-- KEYS[2…] those of the release
-- ARGV[1] '', or the node's clock in µs: when another attempt than ARGV[2] counts on the hold since then, nothing is done
-- ARGV[2] the attempt that the owner had the lock by, '' = not known
-- ARGV[3…] those of the release
-- RETURNS what the release returns, or {-1, 0} when nothing was done
-- ERRORS  WRONGTYPE. Nothing is changed then.

if ARGV[1] ~= '' then
  local noted = redis.pcall('HGETALL', KEYS[1])
  if noted.err or #noted == 0 then return {-1, 0} end
  for i = 1, #noted, 2 do
    local at = tonumber(noted[i + 1])
    if (noted[i] ~= ARGV[2] or ARGV[2] == '') and not (at and at <= tonumber(ARGV[1])) then return {-1, 0} end
  end
end
local keys, args = {}, {}
for i = 2, #KEYS do keys[#keys + 1] = KEYS[i] end
for i = 3, #ARGV do args[#args + 1] = ARGV[i] end
local out = release(keys, args)
if out[1] == 1 or out[1] == -1 and out[2] == 0 then redis.call('DEL', KEYS[1]) end
return out
