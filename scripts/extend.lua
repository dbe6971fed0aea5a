-- extend gives one owner's hold of a plain lock a lease that may be shorter than what it had left: the verb RENEW, and MULTILOCK
-- when it has its last lock.
--
-- KEYS[1] lock hash
-- ARGV[1] owner, the hash field
-- ARGV[2] lease in ms
-- ARGV[3] not-after in µs of Redis' clock; after it nothing is done
-- ARGV[4] set      a connection's lease
--         renew    a named owner's lease, with another odd expiry than it had
--         lengthen as renew, but never to less than it had: an earlier request may have been done
--         keep     a named owner's lease, with an even expiry, if it has the expiry ARGV[5]
-- ARGV[5] with keep: the expiry, in ms since 1970, that the hold must have; else ''
-- RETURNS {1, ttl in ms, expiry or 0} done
--         {-1, 0, 0} the owner does not hold the lock, or not with that expiry
--         {-2, 0, 0} too late, nothing done
--         {-3, 0, 0} the key holds a lock of another kind
-- ERRORS  WRONGTYPE. Nothing is changed then.

-- include clock

local lock, how = KEYS[1], ARGV[4]
if clock > tonumber(ARGV[3]) then return {-2, 0, 0} end
local there = redis.call('HEXISTS', lock, ARGV[1]) == 1
if redis.call('HEXISTS', lock, 'mode') == 1 then return {-3, 0, 0} end
if not there then return {-1, 0, 0} end
if how == 'set' then
  redis.call('PEXPIRE', lock, ARGV[2])
  return {1, tonumber(ARGV[2]), 0}
end
-- include lease
if how == 'keep' and expires_at(lock) ~= tonumber(ARGV[5]) then return {-1, 0, 0} end
local left, expiry = give_lease(lock, tonumber(ARGV[2]), how)
return {1, left, expiry}
