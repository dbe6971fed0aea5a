-- stand is what the scripts of a quorum share. On each of its nodes a hash stands beside a hold: each attempt that counts on the
-- hold, and the node's clock in µs when it came. An attempt that was not won is taken out again, and the hold ends with the last
-- one, so that nobody takes away what another attempt counts on. The attempt '' stands for some that are no longer told apart.
-- Nobody takes that one out: the hold ends by UNLOCK, or with its lease.

-- most is how many attempts are told apart on one hold.
local most = 16

-- stand notes that an attempt counts on a hold for ttl ms. fresh: the attempt has made the hold; before it there was none.
-- A node that is out of memory does not take the note, and the hold stays all the same.
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
