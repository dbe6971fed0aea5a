-- info reads one lock for LOCKINFO.
--
-- KEYS[1] lock hash
-- KEYS[2] fencing token
-- KEYS[3] Redisson's fair queue
-- RETURNS {type of the key, ttl in ms, token or "", length of the fair queue, field, value, field, value, …}

local kind = redis.call('TYPE', KEYS[1])['ok']
local token = redis.pcall('GET', KEYS[2])
local queue = redis.pcall('LLEN', KEYS[3])
local out = {
  kind,
  redis.call('PTTL', KEYS[1]),
  type(token) == 'string' and token or '',
  type(queue) == 'number' and queue or 0,
}
if kind == 'hash' then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all do out[4 + i] = all[i] end
end
return out
