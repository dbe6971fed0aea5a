-- token has the fencing token of a lock.

-- next_token returns the token that follows the one at key: higher than all before, and at least Redis' clock in µs. It returns nil, and
-- the error for the client, if what is there is no token.
local function next_token(key)
  local last = tonumber(string.match(redis.call('GET', key) or '0', '^%d+$'))
  if not last or last >= 9007199254740991 then
    return nil, redis.error_reply('ERR the fencing token of this lock is not an integer below 2^53')
  end
  return math.max(last + 1, clock)
end
