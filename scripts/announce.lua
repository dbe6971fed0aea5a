-- include beside tell

-- announce publishes that the plain lock is free, on the lock's channel and to the first in the fair queue.
local function announce(publish, queue)
  tell(publish, beside(queue, 'redisson_lock__channel'), '0')
  if redis.call('EXISTS', queue) == 1 then
    -- include queue
    local fair = fair_queue(queue)
    fair.wake(publish, fair.first())
  end
end
