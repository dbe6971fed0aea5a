-- include beside tell

-- announce tells that the plain lock is free: one proxy, the first in the fair queue, and whoever listens to the lock's channel.
local function announce(publish, keys, proxy)
  local channel = beside(keys[2], 'redisson_lock__channel')
  local wakes = 'lockproxy_wake:' .. keys[2] .. ':' .. keys[1] -- as wakes_of says, which need not be made while nobody waits
  if redis.call('EXISTS', keys[2], wakes) == 0 then return tell(publish, channel, '0') end
  -- include wake
  wake(publish, keys, channel, '0', proxy)
  if redis.call('EXISTS', keys[2]) == 1 then
    -- include queue
    local fair = fair_queue(keys[2])
    fair.wake(publish, fair.first())
  end
end
