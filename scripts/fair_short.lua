-- fair_short follows acquire_short in the same script, for a connection that waits in the fair queue: it enters an empty queue, keeps its
-- place, or gets the lock as the first in the queue. In all other cases acquire goes on. KEYS and ARGV are those of acquire.
--
-- RETURNS 1          granted, with a count of 1 for the whole lease
--         -16 - ttl  somebody else holds the lock for ttl ms more, and the owner keeps its place in the queue. Nothing is changed, so the
--                    not-after is not checked
--         {0, 0, ttl in ms, ticket}  somebody else holds the lock, and the owner has entered the queue
--         -2         too late, nothing done

if flags == 'NE' then
  local queue, ticket, beside = KEYS[2], ARGV[9], string.sub(KEYS[2], 20)
  local timeouts, tickets = 'redisson_lock_timeout' .. beside, 'lockproxy_fair' .. beside
  if ttl ~= -2 then
    local seen = call('HMGET', lock, 'mode', owner)
    if seen[1] or seen[2] then
      -- A read/write lock, or a hold of this owner that the proxy does not know: acquire goes on.
    elseif ticket ~= '0' then
      local noted = call('HGET', tickets, owner)
      if noted and string.find(noted, ticket .. ':', 1, true) == 1 and call('ZSCORE', timeouts, owner) then
        return -16 - ttl -- nothing to write: refresh reports every 3 s that the waiter is alive
      end
    elseif call('EXISTS', queue, timeouts, tickets) == 0 then
      local time = call('TIME')
      if time[1] >= ARGV[3] and time[1] * 1000000 + time[2] - ARGV[3] > 1000000 then return -2 end
      local place = time[1] .. string.sub('00000' .. time[2], -6)
      local now = string.sub(place, 1, -4)
      call('HSET', tickets, '', place, owner, place .. ':' .. now)
      call('RPUSH', queue, owner)
      call('ZADD', timeouts, string.format('%.0f', now + 10000), owner) -- as until_when in enqueue.lua
      call('PEXPIRE', tickets, '60000') -- as remember in enqueue.lua
      return {0, 0, ttl, tonumber(place)}
    end
  elseif ticket ~= '0' and redis.pcall('LINDEX', queue, '0') == owner then
    local time = call('TIME')
    if time[1] >= ARGV[3] and time[1] * 1000000 + time[2] - ARGV[3] > 1000000 then return -2 end
    local known = call('HLEN', tickets) -- if this key has another type the script fails here, before it changes anything
    call('ZREM', timeouts, owner)
    call('LPOP', queue)
    if known - call('HDEL', tickets, owner) == 1 then call('DEL', tickets) end
    call('HSET', lock, owner, '1')
    call('PEXPIRE', lock, ARGV[1])
    return 1
  end
end
