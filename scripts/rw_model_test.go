package scripts_test

// Redisson's own steps on a read/write lock, as its sources describe them, to compare ours with. KEYS[1] is the lock, KEYS[2]
// its channel, ARGV[1] the lease, ARGV[2] the owner, ARGV[3] what the keys of read holds begin with.
const redissonHead = `
local lock, channel, lease, owner, prefix = KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[2], ARGV[3]
local writer, holds = owner .. ':write', prefix .. ':' .. owner .. ':rwlock_timeout:'
local mode = redis.call('HGET', lock, 'mode')
`

var redisson = map[string]string{
	"RLOCK": redissonHead + `
if not mode then
  redis.call('HSET', lock, 'mode', 'read')
  redis.call('HSET', lock, owner, 1)
  redis.call('SET', holds .. 1, 1, 'PX', lease)
  redis.call('PEXPIRE', lock, lease)
  return 'OK'
end
if mode == 'read' or redis.call('HEXISTS', lock, writer) == 1 then
  local i = redis.call('HINCRBY', lock, owner, 1)
  redis.call('SET', holds .. i, 1, 'PX', lease)
  redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), lease))
  return 'OK'
end
return 'nil'`,
	"WLOCK": redissonHead + `
if not mode then
  redis.call('HSET', lock, 'mode', 'write')
  redis.call('HSET', lock, writer, 1)
  redis.call('PEXPIRE', lock, lease)
  return 'OK'
end
if mode == 'write' and redis.call('HEXISTS', lock, writer) == 1 then
  redis.call('HINCRBY', lock, writer, 1)
  redis.call('PEXPIRE', lock, redis.call('PTTL', lock) + lease)
  return 'OK'
end
return 'nil'`,
	"UNLOCK READ": redissonHead + `
if not mode then redis.call('PUBLISH', channel, '0') return 'nil' end
if redis.call('HEXISTS', lock, owner) == 0 then return 'nil' end
local count = redis.call('HINCRBY', lock, owner, -1)
if count == 0 then redis.call('HDEL', lock, owner) end
redis.call('DEL', holds .. (count + 1))
if redis.call('HLEN', lock) > 1 then
  local longest = -3
  for _, field in ipairs(redis.call('HKEYS', lock)) do
    local holding = tonumber(redis.call('HGET', lock, field))
    if holding then
      for i = holding, 1, -1 do
        longest = math.max(longest, redis.call('PTTL', prefix .. ':' .. field .. ':rwlock_timeout:' .. i))
      end
    end
  end
  if longest > 0 then redis.call('PEXPIRE', lock, longest) return '0' end
  if mode == 'write' then return '0' end
end
redis.call('DEL', lock)
redis.call('PUBLISH', channel, '0')
return '1'`,
	"UNLOCK WRITE": redissonHead + `
if not mode then redis.call('PUBLISH', channel, '1') return 'nil' end
if mode ~= 'write' or redis.call('HEXISTS', lock, writer) == 0 then return 'nil' end
if redis.call('HINCRBY', lock, writer, -1) > 0 then redis.call('PEXPIRE', lock, lease) return '0' end
redis.call('HDEL', lock, writer)
if redis.call('HLEN', lock) == 1 then
  redis.call('DEL', lock)
  redis.call('PUBLISH', channel, '1')
else
  redis.call('HSET', lock, 'mode', 'read')
end
return '1'`,
	"FORCE READ": redissonHead + `
if mode ~= 'read' then return '0' end
redis.call('DEL', lock)
redis.call('PUBLISH', channel, '0')
return '1'`,
	"FORCE WRITE": redissonHead + `
if mode ~= 'write' then return '0' end
redis.call('DEL', lock)
redis.call('PUBLISH', channel, '1')
return '1'`,
}
