-- full is how a script writes although Redis is full (maxmemory): it stands before those that keep a lock or give one back.
-- Redis refuses a command that may need memory only as a script's first write, so that no script ends half-way.

-- allow_writes makes a first write that needs no memory and changes nothing: no owner has an empty name.
local function allow_writes(lock) redis.call('HDEL', lock, '') end
