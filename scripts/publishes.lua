-- publishes checks with which commands Redis publishes. It calls each without arguments: only a command that Redis does not have is answered
-- as unknown. It also counts the locks' channels that somebody hears by SUBSCRIBE, to whom SPUBLISH says nothing.
--
-- RETURNS SPUBLISH: 1 it is known, 0 it is not; PUBLISH: the same; how many channels are heard, 0 if the account may not ask

local out = {}
for i, command in ipairs({'SPUBLISH', 'PUBLISH'}) do
  local reply = redis.pcall(command)
  out[i] = (type(reply) == 'table' and reply.err and string.find(reply.err, '[Uu]nknown')) and 0 or 1
end
local heard = redis.pcall('PUBSUB', 'CHANNELS', 'redisson_lock__channel:*')
out[3] = heard.err and 0 or #heard
return out
