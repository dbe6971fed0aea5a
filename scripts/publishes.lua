-- publishes says which of some commands this Redis knows, by calling each without the arguments that it wants.
--
-- ARGV    names of commands
-- RETURNS for each 1 it is known, 0 it is not

local out = {}
for i, command in ipairs(ARGV) do
  local reply = redis.pcall(command)
  out[i] = (type(reply) == 'table' and reply.err and string.find(reply.err, '[Uu]nknown')) and 0 or 1
end
return out
