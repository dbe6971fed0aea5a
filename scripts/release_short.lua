-- release_short stands before release in the same script, as acquire_short does before acquire. It gives back one hold of a connection, or
-- the hold of a named owner. If that frees the lock, the fair queue must be empty or its first waiter alive. In all other cases release
-- goes on.
-- KEYS and ARGV are those of release. If ARGV[4] is empty callers do not send it, and then neither ARGV[2] if that is PUBLISH.
--
-- RETURNS 1          the lock is free
--         n above 1  the owner still holds it, n - 1 times
--         -2         too late, nothing done

if not ARGV[3] then
  ARGV[3] = ARGV[2]
  ARGV[2] = 'PUBLISH'
end
local flags = ARGV[4] or ''
if flags == '' or flags == 'AW' then
  local call, lock, publish, watch_key = redis.call, KEYS[1], ARGV[2], nil
  local seen = call('HMGET', lock, 'mode', ARGV[1])
  local count = seen[2]
  local last = count == '1'
  if flags == 'AW' then
    watch_key = KEYS[3]
    last = count and ARGV[5] ~= '' and redis.pcall('GET', watch_key) == ARGV[5]
  end
  if seen[1] then
    -- A read/write lock: release goes on.
  elseif flags == '' and (count == '2' or count == '3') then
    local time = call('TIME')
    if time[1] >= ARGV[3] and time[1] * 1000000 + time[2] - ARGV[3] > 1000000 then return -2 end
    call('HDEL', lock, '') -- as allow_writes: a full Redis must not refuse this
    return call('HINCRBY', lock, ARGV[1], '-1') + 1
  elseif last then
    local beside, turn, time = string.sub(KEYS[2], 20), redis.pcall('LINDEX', KEYS[2], '0'), call('TIME')
    local channel, told = 'redisson_lock__channel' .. beside, not turn
    if turn and type(turn) == 'string' then
      local now, score = time[1] * 1000 + math.floor(time[2] / 1000), call('ZSCORE', 'redisson_lock_timeout' .. beside, turn)
      local heard = string.match(call('HGET', 'lockproxy_fair' .. beside, turn) or '', ':(%d+)$')
      told = score and score - now > 0 and (not heard or heard + 10000 - now > 0) -- as the function first in queue.lua
    end
    if told then
      if time[1] >= ARGV[3] and time[1] * 1000000 + time[2] - ARGV[3] > 1000000 then return -2 end
      if publish == 'BOTH' then
        call('SPUBLISH', channel, '0')
        if turn then call('SPUBLISH', channel .. ':' .. turn, '0') end
        publish = 'PUBLISH'
      end
      call(publish, channel, '0')
      if turn then call(publish, channel .. ':' .. turn, '0') end
      if watch_key then call('DEL', lock, watch_key) else call('DEL', lock) end
      return 1
    end
  end
  ARGV[4] = flags
end
