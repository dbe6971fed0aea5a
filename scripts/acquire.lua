-- acquire takes the plain lock KEYS[1] for an owner, or re-enters it: Redisson's RLock acquire (hash owner -> count with a TTL),
-- with a not-after, and the fencing token and the registration of lockproxy beside it. Nobody passes a fair queue
-- in which somebody lives, and who waits in it (E) enters it here: Redisson's RFairLock acquire, with scores of our own.
--
-- KEYS[1] lock hash
-- KEYS[2] its fair queue
--         then in this order those that ARGV[4] asks for:
--         fencing token (F), registration of a named owner (W, D)
-- ARGV[1] lease in ms
-- ARGV[2] owner, the hash field
-- ARGV[3] not-after in µs of Redis' clock, less a second: later than that nothing is done
-- ARGV[4] letters: N the owner knows of no hold of its own: one that is there was lost, and is counted from 1 again;
--         F give a fencing token, higher than all before, O once (an owner that holds gets no second count),
--         W a named owner's hold, which is renewed, D one that is not unless it was before, E wait in the fair queue
-- ARGV[5] PUBLISH, SPUBLISH, or BOTH
-- ARGV[6] with W or D: the registration
-- ARGV[7] with F: TTL of the fencing token in ms, 0 = none
-- ARGV[8] with E: what a waiter of Redisson takes off the others' scores when its turn comes, in ms
-- ARGV[9] with E: the ticket that this waiter has, 0 = none
-- RETURNS what acquire_free returns, or
--         {1, count, ttl in ms, token or 0, raised}  granted
--                                            raised is 1; 0 when the owner had it, once; -1 when it had, and nobody renewed it
--         {0, 0, ttl in ms, ticket or 0}     held by somebody else
--         {0, 1, ttl in ms, ticket or 0}     free, and somebody else's turn: ttl is for how long that one counts as alive
--         {-2, 0, 0, 0}                      too late, nothing done
--         {-3, 0, 0, 0}                      the key holds a lock of another kind
-- ERRORS  WRONGTYPE; ERR when the fencing token is not an integer below 2^53. Nothing is changed then.

local past, now = late(ARGV[3])
if past then return {-2, 0, 0, 0} end

local lock, lease, owner, flags = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[4]
local queue = KEYS[2]
local held, stale, waited = false, false, nil

-- refuse has a waiter take its place.
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
  -- What is left of a hold that was told lost, or is no count, is not entered again: it becomes one hold.
  if string.find(flags, 'N') or not string.find(held, '^[1-9]%d*$') or #held > 15 then held, stale = false, true end
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
