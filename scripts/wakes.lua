-- wakes_of returns the key of the zset of the proxies that wait for a lock: see wake.lua. Its hash tag is the lock's. It has both names since `a`
-- and `{a}` have one queue and one channel.
local function wakes_of(keys) return 'lockproxy_wake:' .. keys[2] .. ':' .. keys[1] end
