-- refresh keeps the waiters of one proxy in a fair queue alive, mends the queue, and sees to it that whose turn it is knows.
--
-- KEYS[1] lock hash
-- KEYS[2] its fair queue
-- ARGV[1] not-after in µs of Redis' clock
-- ARGV[2] PUBLISH, SPUBLISH, or BOTH
-- ARGV[3] what a waiter of Redisson takes off the others' scores when its turn comes, in ms
-- ARGV[4…] for each waiter its owner and its ticket
-- RETURNS {for how long in ms the first in the queue counts as alive, -1 = nobody waits; then the numbers, from 1, of the waiters
--         that are to try: not in the queue any more, or the lock is free and it is their turn}, or {-2}: too late, nothing done
-- ERRORS  WRONGTYPE. Nothing is changed then.

local time = redis.call('TIME')
if time[1] * 1000000 + time[2] > tonumber(ARGV[1]) then return {-2} end
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local queue = KEYS[2]
local timeouts, tickets = beside(queue, 'redisson_lock_timeout'), beside(queue, 'lockproxy_fair')

local mine = {}
for i = 4, #ARGV, 2 do mine[ARGV[i]] = ARGV[i + 1] end

-- One entry each, and a score: who is in the list only, and is none of ours, would block all others for ever, and who has a score
-- only would never be let in.
local seen, others = {}, 0
redis.call('ZCARD', timeouts) -- of another type it fails here
for _, owner in ipairs(redis.call('LRANGE', queue, 0, -1)) do
  if seen[owner] then
    redis.call('LREM', queue, -1, owner)
  elseif mine[owner] then
    seen[owner] = true
    redis.call('ZADD', timeouts, until_when(now, others, tonumber(ARGV[3])), owner)
    redis.call('HSET', tickets, owner, mine[owner] .. string.format(':%.0f', now))
  elseif redis.call('HEXISTS', tickets, owner) == 1 then
    seen[owner] = true
  elseif redis.call('ZSCORE', timeouts, owner) then
    seen[owner] = true
    others = others + 1
  else
    redis.call('LREM', queue, 1, owner)
  end
end
if redis.call('ZCARD', timeouts) ~= redis.call('LLEN', queue) then
  for _, owner in ipairs(redis.call('ZRANGE', timeouts, 0, -1)) do
    if not seen[owner] then redis.call('ZREM', timeouts, owner) end
  end
end
if redis.call('HLEN', tickets) > redis.call('LLEN', queue) + 1 then
  for _, owner in ipairs(redis.call('HKEYS', tickets)) do
    if owner ~= '' and not seen[owner] then redis.call('HDEL', tickets, owner) end
  end
end
remember(tickets, others, tonumber(ARGV[3]))

local turn, left = mind(queue).first()
local free = turn and redis.call('EXISTS', KEYS[1]) == 0
if free and not mine[turn] then tell(ARGV[2], beside(queue, 'redisson_lock__channel') .. ':' .. turn, '0') end
local out = {left or -1}
for i = 4, #ARGV, 2 do
  if not seen[ARGV[i]] or free and ARGV[i] == turn then out[#out + 1] = (i - 2) / 2 end
end
return out
