-- refresh reports that the waiters of one proxy in a fair queue are alive, repairs the queue, and wakes the first in it if the lock is
-- free.
--
-- KEYS[1] lock hash
-- KEYS[2] its fair queue
-- ARGV[1] not-after in µs of Redis' clock
-- ARGV[2] PUBLISH, SPUBLISH, or BOTH
-- ARGV[3…] for each waiter its owner and its ticket
-- RETURNS {for how long in ms the first in the queue counts as alive, -1 = nobody waits; then the numbers, from 1, of the waiters in ARGV
--         that must try for the lock: those no longer in the queue and, if the lock is free, the first in it}, or {-2}: too late, nothing
--         done
-- ERRORS  WRONGTYPE. Nothing is changed then.

-- include clock queue enqueue

if clock > tonumber(ARGV[1]) then return {-2} end
local queue, waiting = KEYS[2], places(KEYS[1], KEYS[2])
local timeouts, tickets = beside(queue, 'redisson_lock_timeout'), beside(queue, 'lockproxy_fair')

local mine = {}
for i = 3, #ARGV, 2 do mine[ARGV[i]] = tonumber(ARGV[i + 1]) end

-- Each waiter must be in the list once, and have a score. For Redisson's scripts, an entry without a score blocks all others for ever, and
-- an owner with a score but no entry never gets the lock.
-- The list is repaired up to window only, to bound Redis' time. This proxy's waiters behind that are still reported alive, and the rest
-- is repaired when it has moved up.
local window = 1000
local seen, others, most, length = {}, false, 0, redis.call('LLEN', queue)
redis.call('ZREM', timeouts, '') -- as allow_writes, for a full Redis; if the key has another type the script fails here
local names = redis.call('LRANGE', queue, 0, window - 1)
local entries = #names > 0 and redis.call('HMGET', tickets, unpack(names)) or {}
for i, owner in ipairs(names) do
  if seen[owner] then
    if length <= window then redis.call('LREM', queue, -1, owner) end
  elseif mine[owner] then
    seen[owner] = true
    most = math.max(most, waiting.stay(owner, mine[owner], entries[i], others))
  elseif entries[i] then
    seen[owner] = true
  elseif redis.call('ZSCORE', timeouts, owner) then
    seen[owner], others = true, true
  else
    redis.call('LREM', queue, 1, owner)
  end
end
if length > window then
  for owner, ticket in pairs(mine) do
    local entry = not seen[owner] and redis.call('HGET', tickets, owner)
    if entry and redis.call('ZSCORE', timeouts, owner) then
      seen[owner] = true
      most = math.max(most, waiting.stay(owner, ticket, entry, true))
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
waiting.remember(most)

local fair = fair_queue(queue)
local turn, left = fair.first()
local free = turn and redis.call('EXISTS', KEYS[1]) == 0
if free and not mine[turn] then fair.wake(ARGV[2], turn) end
local out = {left or -1}
for i = 3, #ARGV, 2 do
  if not seen[ARGV[i]] or free and ARGV[i] == turn then out[#out + 1] = (i - 1) / 2 end
end
return out
