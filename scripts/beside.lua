-- beside returns the name, with that prefix, of another key or the channel of a fair queue's lock. Only the list is among the KEYS, since each
-- of KEYS takes time and nearly all locks have no queue. The names of the zset, the hash and the channel differ from the list's in their prefix
-- only.
local function beside(queue, prefix) return prefix .. string.sub(queue, 20) end
