-- write_acquire takes the write lock for an owner, or enters it once more: Redisson's write acquire, with a not-after, and the
-- fencing token and the registration of lockproxy beside it. Entering it again never shortens the lease; Redisson
-- adds to it, after which a dead holder blocks the others for the sum: the state is the same, only its end comes earlier.
--
-- KEYS[1] lock hash, then in this order those that ARGV[4] asks for:
--         fencing token (F), registration of a named owner (W, D)
-- ARGV[1] lease in ms
-- ARGV[2] OWNER:write, the hash field
-- ARGV[3] not-after in µs of Redis' clock, less a second: later than that nothing is done
-- ARGV[4] letters: N the owner knows of no write hold of its own, M of no read hold: one that is there was lost. A write
--         hold is counted from 1 again then, a read hold is like somebody else's;
--         F give a fencing token, higher than all before, O once (an owner that writes gets no second count),
--         W a named owner's hold, which is renewed, D one that is not unless it was before
-- ARGV[5] the registration
-- ARGV[6] TTL of the fencing token in ms, 0 = none
-- ARGV[7] the owner's field as a reader
-- ARGV[8] what the keys of read holds begin with, before the owner
-- RETURNS what write_free returns, or
--         {1, count, ttl in ms, token or 0, raised}  granted
--                                            raised is 1; 0 when the owner had it, once; -1 when it had, and nobody renewed it
--         {0, 0, ttl in ms, 0}               held by somebody else
--         {-2, 0, 0, 0}                      too late, nothing done
--         {-3, 0, 0, 0}                      the key holds a lock of another kind
--         {-5, 0, 0, 0}                      the owner reads: it would wait for itself
-- ERRORS  WRONGTYPE; ERR when the fencing token is not an integer below 2^53. Nothing is changed then.

local past, now = late(ARGV[3])
if past then return {-2, 0, 0, 0} end
local lock, lease, field, flags, reader = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[4], ARGV[7]
local holds = ARGV[8] .. ':' .. reader .. ':rwlock_timeout'
local seen = redis.call('HMGET', lock, 'mode', field, reader)
local mode = seen[1]
if alien(lock, mode) then return {-3, 0, 0, 0} end
if mode == 'read' and not string.find(flags, 'M') and own(holds, counted(seen[3])) > 0 then return {-5, 0, 0, 0} end
if mode and not (mode == 'write' and seen[2]) then return {0, 0, redis.call('PTTL', lock), 0} end

-- What is left of a hold that was told lost, or is no count, is not entered again: it becomes one hold.
local count = counted(seen[2])
if string.find(flags, 'N') then count = 0 end
local held = count > 0
local once = held and string.find(flags, 'O')

local next_key, token = 2, 0
if string.find(flags, 'F') then
  local key = KEYS[next_key]
  next_key = next_key + 1
  token = tonumber(string.match(redis.call('GET', key) or '0', '^%d+$'))
  if not token or token >= 9007199254740991 then
    return redis.error_reply('ERR the fencing token of this lock is not an integer below 2^53')
  end
  token = math.max(token + 1, now)
  if held then allow_writes(lock) end
  redis.call('SET', key, string.format('%.0f', token))
  if tonumber(ARGV[6]) > 0 then redis.call('PEXPIRE', key, ARGV[6]) end
end

if once then
  allow_writes(lock)
else
  count = count + 1
  if not mode then redis.call('HSET', lock, 'mode', 'write') end
  redis.call('HSET', lock, field, string.format('%.0f', count))
end
local ttl = lease
if held then
  ttl = outlast(lock, lease)
else
  if mode then ttl = math.max(lease, own(holds, counted(seen[3]))) end -- nobody else reads beside a writer
  redis.call('PEXPIRE', lock, ttl)
end

local unrenewed = string.find(flags, '[WD]') and enrol(KEYS[next_key], ARGV[5], ttl, held, string.find(flags, 'W'))
return {1, count, ttl, token, once and (unrenewed and -1 or 0) or 1}
