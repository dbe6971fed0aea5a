-- info reads one lock for LOCKINFO and LOCKLIST SCAN.
--
-- KEYS[1] lock hash
-- KEYS[2] fencing token
-- KEYS[3] Redisson's fair queue
-- ARGV[1] prefix of the keys of all read holds (see rw.lua), by which readers whose holds have expired are left out
-- ARGV[2] how many fields are read: of a hash with more only about as many
-- RETURNS {type of the key, ttl in ms, token or "", length of the fair queue, number of fields that were not read, field, value, field, value, …};
--         of a lock that several may hold (limit) the ttl is that of the last place, and each field is an owner with the ms that are left;
--         the type is `other` for a hash that is no lock: it has several fields and no mode, or more fields or bytes than a lock has

-- include clock rw limit

local kind = redis.call('TYPE', KEYS[1])['ok']
local token = redis.pcall('STRLEN', KEYS[2])
token = type(token) == 'number' and token <= 16 and redis.pcall('GET', KEYS[2])
local queue = redis.pcall('LLEN', KEYS[3])
local out = {
  kind,
  redis.call('PTTL', KEYS[1]),
  type(token) == 'string' and token or '',
  type(queue) == 'number' and queue or 0,
  0,
}
if kind == 'string' or kind == 'none' then
  local ends = ends_of(KEYS[1])
  local is, at = pcall(redis.call, 'ZRANGEBYSCORE', ends, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', '0', ARGV[2])
  if not is or #at == 0 then return out end
  out[1], out[5] = 'limit', redis.call('ZCOUNT', ends, '(' .. now, '+inf') - #at / 2
  out[2] = tonumber(redis.call('ZRANGE', ends, '-1', '-1', 'WITHSCORES')[2]) - now
  for i = 1, #at, 2 do
    out[#out + 1] = at[i]
    out[#out + 1] = string.format('%.0f', at[i + 1] - now)
  end
end
if kind ~= 'hash' then return out end

local mode, fields, most = text(KEYS[1], 'mode'), redis.call('HLEN', KEYS[1]), tonumber(ARGV[2])
local other = {'other', out[2], out[3], out[4], 0}
if not mode and fields > 1 or mode and mode ~= 'read' and mode ~= 'write' or fields > 5000 then return other end
-- This looks at every field, so it comes after the bound on their number.
local bytes = redis.pcall('MEMORY', 'USAGE', KEYS[1], 'SAMPLES', '0')
if type(bytes) == 'number' and bytes > 8192 + 1024 * fields then return other end
looks = math.max(looks, math.min(fields, most))
local all
if fields > most then
  all = redis.call('HSCAN', KEYS[1], '0', 'COUNT', ARGV[2])[2]
else
  all = redis.call('HGETALL', KEYS[1])
end
out[5] = math.max(0, fields - #all / 2)
for i = 1, #all, 2 do
  local field, value = all[i], all[i + 1]
  local reader = mode and counted(value) > 0 and string.sub(field, -6) ~= ':write'
  if not reader or reads(ARGV[1], field, counted(value)) > 0 then
    out[#out + 1] = field
    out[#out + 1] = value
  end
end
return out
