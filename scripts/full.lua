-- full lets scripts write although Redis is full (maxmemory). It stands before those that keep a lock or give one back.
-- Redis refuses a command that may need memory only if it is the first write of a script, so that no script stops half-way. After a first
-- write that needs no memory, all others are allowed.

-- allow_writes is such a first write. It changes nothing, since no owner has an empty name.
local function allow_writes(lock) redis.call('HDEL', lock, '') end
