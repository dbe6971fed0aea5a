-- lease has what scripts share that set when a hold ends. Times are in ms, those of Redis' clock are in ms since 1970.

-- expires_at returns when a key expires, nil if there is no such key or Redis, before 7.0, does not tell.
local function expires_at(key)
  local at = redis.pcall('PEXPIRETIME', key)
  if type(at) == 'number' and at > 0 then return at end
end

-- give_lease gives a named owner's hold a lease. It returns for how long the hold lasts, and its expiry.
-- The expiry tells who made the hold: the LOCK that makes it sets an even number of ms; each LOCK that joins it, and each RENEW, an odd one. So
-- the maker's expiry is there for only as long as nobody has joined.
-- how is make     for a hold that is made now; keep is the same for one that nobody has joined
--        lengthen for one that is joined: the expiry is later than the hold's own
--        renew    for a lease that may be shorter: the expiry is not the hold's own
local function give_lease(key, lease, how)
  local now = math.ceil(clock / 1000)
  local least = now + lease
  local expiry = least + least % 2
  if how ~= 'make' and how ~= 'keep' then
    local own = expires_at(key)
    if how == 'lengthen' then least = math.max(least, own or now + redis.call('PTTL', key)) end
    expiry = least + 1 + least % 2
    if expiry == own then expiry = expiry + 2 end
  end
  redis.call('PEXPIREAT', key, expiry)
  return expiry - now, expiry
end
