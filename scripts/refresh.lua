-- refresh keeps the waiters of one proxy in a fair queue alive, mends the queue, and sees to it that whose turn it is knows.
--
-- KEYS[1] lock hash
-- KEYS[2] its fair queue
-- ARGV[1] not-after in µs of Redis' clock, less a second
-- ARGV[2] PUBLISH, SPUBLISH, or BOTH
-- ARGV[3] what a waiter of Redisson takes off the others' scores when its turn comes, in ms
-- ARGV[4…] for each waiter its owner and its ticket
-- RETURNS {for how long in ms the first in the queue counts as alive, -1 = nobody waits; then the numbers, from 1, of the waiters
--         that are to try: not in the queue any more, or the lock is free and it is their turn}, or {-2}: too late, nothing done
-- ERRORS  WRONGTYPE. Nothing is changed then.

local past, time = late(ARGV[1])
if past then return {-2} end
local now = math.floor(time / 1000)
local queue = KEYS[2]
local timeouts, tickets = beside(queue, 'redisson_lock_timeout'), beside(queue, 'lockproxy_fair')

local mine = {}
for i = 4, #ARGV, 2 do mine[ARGV[i]] = ARGV[i + 1] end

-- One entry each, and a score: who is in the list only, and is none of ours, would block all others for ever, and who has a score
-- only would never be let in.
-- Only so many are looked at: behind them those of this proxy are kept alive, and the rest is mended when its turn comes.
local window = 1000
local seen, others, length = {}, 0, redis.call('LLEN', queue)
redis.call('ZREM', timeouts, '') -- of another type it fails here; after a write that needs no memory a full Redis allows the others
for _, owner in ipairs(redis.call('LRANGE', queue, 0, window - 1)) do
  if seen[owner] then
    if length <= window then redis.call('LREM', queue, -1, owner) end
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
if length > window then
  others = math.max(others, length + 1 - redis.call('HLEN', tickets))
  for owner, ticket in pairs(mine) do
    if not seen[owner] and redis.call('ZSCORE', timeouts, owner) and redis.call('HEXISTS', tickets, owner) == 1 then
      seen[owner] = true
      redis.call('ZADD', timeouts, until_when(now, others, tonumber(ARGV[3])), owner)
      redis.call('HSET', tickets, owner, ticket .. string.format(':%.0f', now))
    end
  end
elseif redis.call('ZCARD', timeouts) ~= redis.call('LLEN', queue) then
  for _, owner in ipairs(redis.call('ZRANGE', timeouts, 0, 2 * window)) do
    if not seen[owner] then redis.call('ZREM', timeouts, owner) end
  end
end
local known = redis.call('HLEN', tickets)
if length <= window and known > redis.call('LLEN', queue) + 1 and known <= 10 * window then
  for _, owner in ipairs(redis.call('HKEYS', tickets)) do
    if owner ~= '' and not seen[owner] then redis.call('HDEL', tickets, owner) end
  end
end
remember(tickets, others, tonumber(ARGV[3]))

local turn, left = mind(queue, time).first()
local free = turn and redis.call('EXISTS', KEYS[1]) == 0
if free and turn ~= '' and not mine[turn] then tell(ARGV[2], beside(queue, 'redisson_lock__channel') .. ':' .. turn, '0') end
local out = {left or -1}
for i = 4, #ARGV, 2 do
  if not seen[ARGV[i]] or free and ARGV[i] == turn then out[#out + 1] = (i - 2) / 2 end
end
return out
