-- write_acquire takes the write lock for an owner, or re-enters it: Redisson's write acquire, plus a not-after, a fencing token and
-- lockproxy's registration. Re-entering never shortens the lease. Redisson adds the new lease to what is left, so that a holder that dies
-- blocks the others for the sum. The state in Redis is the same as Redisson's, but ends earlier.
--
-- KEYS[1] lock hash, then, in this order, the keys that letters of ARGV[4] ask for:
--         fencing token (F), registration of a named owner (W, D)
-- ARGV[1] lease in ms
-- ARGV[2] OWNER:write, the hash field
-- ARGV[3] not-after minus one second, in µs of Redis' clock (see late.lua); after it nothing is done
-- ARGV[4] letters:
--         N  the proxy knows of no write hold of this owner: one that is there was lost, and its count starts again at 1
--         M  the proxy knows of no read hold of this owner: one that is there was lost, and counts as somebody else's
--         F  give a fencing token, higher than all before
--         O  do not nest: an owner that writes keeps its count
--         W  a named owner's hold, which the watchdog renews
--         D  a named owner's hold, which the watchdog does not renew unless it did before
-- ARGV[5] the registration
-- ARGV[6] TTL of the fencing token in ms, 0 = none
-- ARGV[7] the owner's field as a reader
-- ARGV[8] prefix of the keys of all read holds, before the owner
-- RETURNS what write_acquire_short returns, or
--         {1, count, ttl in ms, token or 0, raised}  granted; raised is
--                                            1   a new hold, or the owner has re-entered its hold
--                                            0   letter O: the owner held the lock already
--                                            -1  as 0, but until now no watchdog renewed the hold, and this LOCK wants it renewed
--         {0, 0, ttl in ms, 0}               held by somebody else
--         {-2, 0, 0, 0}                      too late, nothing done
--         {-3, 0, 0, 0}                      the key holds a lock of another kind
--         {-5, 0, 0, 0}                      the owner reads, and would wait for its own UNLOCK
--         {-6, 0, 0, 0}                      without N, O, W and D: the hold that was to be re-entered has gone, nothing done (see acquire)
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

-- A hold that the proxy does not know (N), or a field that is no valid count, is not re-entered: the count starts again at 1.
local count = counted(seen[2])
if string.find(flags, 'N') then count = 0 end
local held = count > 0
if not held and not string.find(flags, '[NOWD]') then return {-6, 0, 0, 0} end
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
  if mode then ttl = math.max(lease, own(holds, counted(seen[3]))) end -- nobody but the writer reads beside it
  redis.call('PEXPIRE', lock, ttl)
end

local unrenewed = string.find(flags, '[WD]') and enrol(KEYS[next_key], ARGV[5], ttl, held, string.find(flags, 'W'))
return {1, count, ttl, token, once and (unrenewed and -1 or 0) or 1}
