-- acquire takes the plain lock KEYS[1] for an owner, or re-enters it: Redisson's RLock acquire (hash owner -> count with a TTL), plus a
-- not-after, a fencing token and lockproxy's registration. While live owners wait in the fair queue, only the first of them gets a free
-- lock. With letter E an owner that is refused enters the queue, as in Redisson's RFairLock, but with other scores (see enqueue.lua).
--
-- KEYS[1] lock hash
-- KEYS[2] its fair queue
--         then, in this order, the keys that letters of ARGV[4] ask for:
--         fencing token (F), registration of a named owner (W, D)
-- ARGV[1] lease in ms
-- ARGV[2] owner, the hash field
-- ARGV[3] not-after minus one second, in µs of Redis' clock (see late.lua); after it nothing is done
-- ARGV[4] letters:
--         N  the proxy knows of no hold of this owner: one that is there was lost, and its count starts again at 1
--         F  give a fencing token, higher than all before
--         O  do not nest: an owner that holds the lock keeps its count
--         W  a named owner's hold, which the watchdog renews
--         D  a named owner's hold, which the watchdog does not renew unless it did before
--         E  wait in the fair queue
-- ARGV[5] PUBLISH, SPUBLISH, or BOTH
-- ARGV[6] with W or D: the registration
-- ARGV[7] with F: TTL of the fencing token in ms, 0 = none
-- ARGV[8] with E: --fair-wait in ms (see enqueue.lua)
-- ARGV[9] with E: the ticket that this waiter has, 0 = none
-- RETURNS what acquire_short or fair_short returns, or
--         {1, count, ttl in ms, token or 0, raised}  granted; raised is
--                                            1   a new hold, or the owner has re-entered its hold
--                                            0   letter O: the owner held the lock already
--                                            -1  as 0, but until now no watchdog renewed the hold, and this LOCK wants it renewed
--         {0, 0, ttl in ms, ticket or 0}     held by somebody else
--         {0, 1, ttl in ms, ticket or 0}     free, but it is another waiter's turn, who counts as alive for ttl ms more
--         {-2, 0, 0, 0}                      too late, nothing done
--         {-3, 0, 0, 0}                      the key holds a lock of another kind
--         {-6, 0, 0, 0}                      the hold that was to be re-entered has gone, nothing done: see reenters
-- ERRORS  WRONGTYPE; ERR when the fencing token is not an integer below 2^53. Nothing is changed then.

local past, now = late(ARGV[3])
if past then return {-2, 0, 0, 0} end

local lock, lease, owner, flags = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[4]
local queue = KEYS[2]
local held, stale, waited = false, false, nil

-- reenters returns whether the proxy knows of a hold of this connection's, which it enters again. If that has gone, no new one is made in its
-- place: it would have the count that was known, as if nothing had been done, and if the reply were lost the proxy could not tell the two apart.
local function reenters() return not string.find(flags, '[NOWD]') end

-- refuse returns a refusal. An owner that waits (E) first enters the fair queue, or keeps its place there.
local function refuse(turn, ttl)
  local ticket = 0
  if string.find(flags, 'E') then ticket = enqueue(queue, owner, tonumber(ARGV[9]), tonumber(ARGV[8]), now) end
  return {0, turn, ttl, ticket}
end

if redis.call('EXISTS', lock) == 1 then
  local seen = redis.call('HMGET', lock, 'mode', owner)
  if seen[1] then return {-3, 0, 0, 0} end
  held = seen[2]
  if not held then return refuse(0, redis.call('PTTL', lock)) end
  -- A hold that the proxy does not know (N), or a field that is no valid count, is not re-entered: the count starts again at 1.
  if string.find(flags, 'N') or not string.find(held, '^[1-9]%d*$') or #held > 15 then
    if reenters() then return {-6, 0, 0, 0} end
    held, stale = false, true
  end
elseif reenters() then
  return {-6, 0, 0, 0}
elseif redis.call('EXISTS', queue) == 1 then
  local fair = mind(queue, now)
  local turn, left, gone = fair.first(owner)
  if turn == owner then
    waited = fair
  elseif turn then
    if gone and turn ~= '' then tell(ARGV[5], beside(queue, 'redisson_lock__channel') .. ':' .. turn, '0') end
    return refuse(1, left)
  end
end

local next_key = 3
local token_key, watch_key
if flags ~= '' then
  if string.find(flags, 'F') then token_key = KEYS[next_key]; next_key = next_key + 1 end
  if string.find(flags, '[WD]') then watch_key = KEYS[next_key] end
end

local token = 0
if token_key then
  local number = tonumber(string.match(redis.call('GET', token_key) or '0', '^%d+$'))
  if not number or number >= 9007199254740991 then
    return redis.error_reply('ERR the fencing token of this lock is not an integer below 2^53')
  end
  token = math.max(number + 1, now)
  local text = string.format('%.0f', token)
  if held then allow_writes(lock) end
  if tonumber(ARGV[7]) > 0 then
    redis.call('SET', token_key, text, 'PX', ARGV[7])
  else
    redis.call('SET', token_key, text)
  end
end

if waited then waited.quit(owner) end
local count
local once = held and string.find(flags, 'O')
if once then
  count = tonumber(held)
  allow_writes(lock)
elseif stale then
  count = 1
  redis.call('HSET', lock, owner, 1)
else
  count = redis.call('HINCRBY', lock, owner, 1)
end
local ttl = lease
if held then ttl = redis.call('PTTL', lock) end
if not held or ttl < lease then
  redis.call('PEXPIRE', lock, lease)
  ttl = lease
end

local unrenewed = watch_key and enrol(watch_key, ARGV[6], ttl, held, string.find(flags, 'W'))
return {1, count, ttl, token, once and (unrenewed and -1 or 0) or 1}
