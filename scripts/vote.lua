-- vote asks one node of a quorum for a lock: it runs the acquire script of the lock's kind, and notes the attempt beside the hold.
--
-- KEYS[1] hash of the attempts that count on the hold (see stand.lua)
-- KEYS[2] fencing token
-- KEYS[3…] those of the acquire
-- ARGV[1] the attempt
-- ARGV[2] F: propose a fencing token. The node does not keep it: when the lock is won, raise.lua brings the highest one to a majority
-- ARGV[3…] those of the acquire
-- RETURNS what the acquire returns, with the proposed token; or, if one other owner alone holds the lock,
--         {0, 0, ttl in ms, a number made from that owner's name, by which the proxy sees on which nodes the owner is the same}
-- ERRORS  those of the acquire; ERR when the fencing token is not an integer below 2^53. Nothing is changed then.

local keys, args = {}, {}
for i = 3, #KEYS do keys[#keys + 1] = KEYS[i] end
for i = 3, #ARGV do args[#args + 1] = ARGV[i] end

local last
if ARGV[2] == 'F' then
  last = tonumber(string.match(redis.call('GET', KEYS[2]) or '0', '^%d+$'))
  if not last or last >= 9007199254740991 then
    return redis.error_reply('ERR the fencing token of this lock is not an integer below 2^53')
  end
end

local out = acquire(keys, args)
if out[1] == 1 then
  if last then out[4] = math.max(last + 1, clock()) end
  stand(KEYS[1], ARGV[1], out[3], out[5] == 1)
elseif out[1] == 0 then
  out[4] = 0
  if redis.call('HLEN', keys[1]) <= 2 then
    for _, field in ipairs(redis.call('HKEYS', keys[1])) do
      if field ~= 'mode' then out[4] = tonumber(string.sub(redis.sha1hex(field), 1, 12), 16) end
    end
  end
end
return out
