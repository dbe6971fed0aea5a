-- stand has what the scripts of a quorum share. Each node keeps a hash beside each hold: the attempts that count on the hold, each with the
-- node's clock in µs when it came. An attempt that did not win the lock is taken out again, and the hold ends with the last one, so that
-- no attempt ends a hold on which another one counts. The field '' stands for attempts that are no longer told apart. It is never taken
-- out: such a hold ends by UNLOCK, or with its lease.

quorum = true -- see registration.lua

-- most is how many attempts are told apart on one hold.
local most = 16

-- stand notes that an attempt counts on a hold, for ttl ms. fresh says that the attempt has made the hold, so that all earlier notes are
-- void. A node that is out of memory may refuse the note; the hold stays all the same.
local function stand(votes, attempt, ttl, fresh)
  local count = redis.pcall('HLEN', votes)
  if fresh or type(count) == 'table' then redis.call('DEL', votes) end
  if fresh or redis.call('HEXISTS', votes, attempt) == 0 then
    if not fresh and (type(count) == 'table' or count == 0 or count >= most or redis.call('HEXISTS', votes, '') == 1) then
      redis.call('DEL', votes)
      attempt = ''
    end
    redis.pcall('HSET', votes, attempt, string.format('%.0f', clock()))
  end
  if redis.call('PTTL', votes) < ttl then redis.call('PEXPIRE', votes, ttl) end
end
