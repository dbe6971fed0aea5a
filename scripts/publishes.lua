-- publishes checks which of some commands Redis has. It calls each without arguments: only a command that Redis does not have is answered
-- as unknown.
--
-- ARGV    names of commands
-- RETURNS for each 1 it is known, 0 it is not

local out = {}
for i, command in ipairs(ARGV) do
  local reply = redis.pcall(command)
  out[i] = (type(reply) == 'table' and reply.err and string.find(reply.err, '[Uu]nknown')) and 0 or 1
end
return out
