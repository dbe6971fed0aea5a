-- info reads one lock for LOCKINFO.
--
-- KEYS[1] lock hash
-- KEYS[2] fencing token
-- KEYS[3] Redisson's fair queue
-- ARGV[1] prefix of the keys of all read holds (see rw.lua), by which readers whose holds have expired are left out
-- RETURNS {type of the key, ttl in ms, token or "", length of the fair queue, field, value, field, value, …}; the type is `other` for
--         a hash that is no lock: it has several fields and no mode, or more fields or read holds than a lock has

local kind = redis.call('TYPE', KEYS[1])['ok']
local token = redis.pcall('GET', KEYS[2])
local queue = redis.pcall('LLEN', KEYS[3])
local out = {
  kind,
  redis.call('PTTL', KEYS[1]),
  type(token) == 'string' and token or '',
  type(queue) == 'number' and queue or 0,
}
if kind ~= 'hash' then return out end

local mode, fields = redis.call('HGET', KEYS[1], 'mode'), redis.call('HLEN', KEYS[1])
local other = {'other', out[2], out[3], out[4]}
if not mode and fields > 1 or fields > looks then return other end
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local count = counted(all[i + 1])
  local reader = mode and count > 0 and string.sub(all[i], -6) ~= ':write'
  local there = not reader or reads(ARGV[1] .. ':' .. all[i] .. ':rwlock_timeout', count)
  if there == nil then return other end
  if there then
    out[#out + 1] = all[i]
    out[#out + 1] = all[i + 1]
  end
end
return out
