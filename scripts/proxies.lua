-- proxies says that a proxy is there, or goes, and returns which proxies are there. What is in the hash may be written by others: a hash that
-- is too large, or a key of another type, is not read, and ends as the last proxy would that said it is there.
--
-- KEYS[1] hash: the id of a proxy, and until when it is there, in ms since 1970, a blank, and what it says of itself
-- ARGV[1] the id of the proxy
-- ARGV[2] for how many ms it is there; 0: it goes
-- ARGV[3] what it says of itself
-- ARGV[4] how many fields the hash may have; it may have a KiB for each
-- RETURNS {1, id, for how many ms, what it says of itself, id, …}, or {0} when the key is not read

-- include clock

local key, now, length, most = KEYS[1], math.floor(clock / 1000), tonumber(ARGV[2]), tonumber(ARGV[4])
local kind = redis.call('TYPE', key)['ok']
local readable = kind == 'hash' or kind == 'none'
if readable and length == 0 then
  redis.call('HDEL', key, ARGV[1])
  return {1}
end
if readable then
  redis.call('HSET', key, ARGV[1], string.format('%.0f ', now + length) .. ARGV[3])
  readable = redis.call('HLEN', key) <= most
end
if readable then
  -- This looks at every field, so it comes after the bound on their number.
  local bytes = redis.pcall('MEMORY', 'USAGE', key, 'SAMPLES', '0')
  readable = type(bytes) ~= 'number' or bytes <= 1024 * most
end
if not readable then
  local left = redis.call('PTTL', key)
  if left < 0 or left > length then redis.call('PEXPIRE', key, ARGV[2]) end
  return {0}
end
redis.call('PEXPIRE', key, ARGV[2])
local all, out = redis.call('HGETALL', key), {1}
for i = 1, #all, 2 do
  local till, said = string.match(all[i + 1], '^(%d+) (.*)$')
  local left = (tonumber(till) or 0) - now
  if left > 0 and left <= length then
    out[#out + 1] = all[i]
    out[#out + 1] = left
    out[#out + 1] = said
  else
    redis.call('HDEL', key, all[i])
  end
end
return out
