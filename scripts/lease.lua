-- lease has what scripts share that set when a hold ends. Times are in ms, those of Redis' clock are in ms since 1970.

-- expires_at returns when a key expires, nil if there is no such key or Redis, before 7.0, does not tell.
local function expires_at(key)
  local at = redis.pcall('PEXPIRETIME', key)
  if type(at) == 'number' and at > 0 then return at end
end

-- lease_end returns when a named owner's hold is to end that ends at was, nil if it is made now; and for how long it lasts then. That tells who made
-- the hold: the LOCK that makes it sets an even number of ms; each LOCK that joins it, and each RENEW, an odd one. So the maker's end is there for
-- only as long as nobody has joined.
-- how is make     for a hold that is made now; keep is the same for one that nobody has joined
--        lengthen for one that is joined: it ends no earlier than it would have
--        join     for one that is joined by what may yet fail: it ends when it would have
--        renew    for a lease that may be shorter
local function lease_end(how, lease, was)
  local now = math.floor(clock / 1000) -- as Redis counts
  local expiry = how == 'join' and now or now + lease
  if how == 'lengthen' or how == 'join' then expiry = math.max(expiry, was) end
  local odd = how ~= 'make' and how ~= 'keep' and 1 or 0
  if expiry % 2 ~= odd then expiry = expiry + 1 end
  return expiry, expiry - math.ceil(clock / 1000)
end

-- give_lease gives a key such a lease, whose expiry is a named owner's. It returns for how long the hold lasts, and its expiry.
local function give_lease(key, lease, how)
  local was = (how == 'lengthen' or how == 'join') and (expires_at(key) or math.floor(clock / 1000) + redis.call('PTTL', key))
  local expiry, lasts = lease_end(how, lease, was)
  redis.call('PEXPIREAT', key, expiry)
  return lasts, expiry
end
