-- drop gives back an owner's hold on one node of a quorum, whichever attempts count on it, by the release script of the hold's kind.
--
-- KEYS[1] hash of the attempts that count on the hold (see stand.lua)
-- KEYS[2…] those of the release
-- ARGV[1] '': whatever counts on the hold
--         a time in µs of the node's clock: nothing is done if an attempt other than ARGV[2] has come after it, because the owner has then
--         taken the lock again
--         numbers as are returned, with = before and after each: nothing is done if another attempt counts on the hold
--         With either nothing is done if no attempt is noted
-- ARGV[2] the attempt by which the proxy has the lock, '' = not known
-- ARGV[3…] those of the release
-- RETURNS what the release returns, or {-1, 0} when nothing was done; when the hold has ended, then for each attempt that counted on it a number
--         made from its name, by which the proxy sees on which nodes an attempt has come
-- ERRORS  WRONGTYPE. Nothing is changed then.

local noted = redis.pcall('HGETALL', KEYS[1])
if noted.err then noted = {} end
local function number(attempt) return attempt == '' and 0 or tonumber(string.sub(redis.sha1hex(attempt), 1, 12), 16) end
if ARGV[1] ~= '' and #noted == 0 then return {-1, 0} end
local among = string.sub(ARGV[1], 1, 1) == '='
for i = 1, ARGV[1] == '' and 0 or #noted, 2 do
  local at = tonumber(noted[i + 1])
  if among then
    if not string.find(ARGV[1], string.format('=%.0f=', number(noted[i])), 1, true) then return {-1, 0} end
  elseif (noted[i] ~= ARGV[2] or ARGV[2] == '') and not (at and at <= tonumber(ARGV[1])) then return {-1, 0} end
end
local keys, args = {}, {}
for i = 2, #KEYS do keys[#keys + 1] = KEYS[i] end
for i = 3, #ARGV do args[#args + 1] = ARGV[i] end
local out = release(keys, args)
if out[1] == 1 or out[1] == -1 and out[2] == 0 then redis.call('DEL', KEYS[1]) end
if out[1] == 1 then
  for i = 1, #noted, 2 do
    out[#out + 1] = number(noted[i])
  end
end
return out
