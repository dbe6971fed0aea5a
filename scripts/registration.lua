-- registration has what the scripts share about named owners. Each hold of a named owner has a registration, a key beside the lock. Its
-- value is the name of the LOCK that made the hold, or of the LOCK or RENEW whose proxy has taken the hold over; no two of these have the
-- same name.
--   -name  no watchdog renews the hold
--   name+  another LOCK relies on the hold, too, or the registration has replaced another one, whose proxy must be told when the hold ends
--   empty  the hold was given back, so that a proxy that still counts on it learns that it was not lost

-- plus returns a registration with one + at its end.
local function plus(registration) return string.match(registration, '^(.-)%+?$') .. '+' end

-- grace is for how many ms an empty registration outlives the hold: its proxy looks when the lease is over by its own clock.
local grace = 2000

-- note writes a registration with a TTL of ttl ms. If it replaces another one, present, it stays at least as long as that would have, so
-- that the other one's proxy finds it. The grace of an empty one is not kept, because unregister would add another to it each time.
local function note(watch_key, registration, ttl, present)
  if present and present ~= registration then
    ttl = math.max(ttl, redis.call('PTTL', watch_key) - (present == '' and grace or 0))
  end
  redis.call('SET', watch_key, registration, 'PX', ttl)
end

-- enrol writes the registration of a LOCK. held says whether the owner held the lock before, renews whether the watchdog is to renew it
-- from now on. Only a LOCK that made the hold, and found no other registration, leaves its own without a +. enrol returns whether renewals
-- begin for a hold that no watchdog renewed before.
local function enrol(watch_key, registration, ttl, held, renews)
  if registration == '' and not held then -- EX or PX on a quorum: a registration found here is of a hold that has ended
    redis.call('SET', watch_key, '', 'XX', 'KEEPTTL')
    return
  end
  local present = redis.pcall('GET', watch_key)
  local own = present == registration
  if held and not renews and not own then
    registration = plus(type(present) == 'string' and present or '')
  elseif (held or present) and not own then
    registration = plus(registration)
  end
  note(watch_key, registration, ttl, present)
  return held and renews and type(present) == 'string' and string.sub(present, 1, 1) == '-'
end

-- rename writes the registration of a RENEW; known is the one that its proxy knew so far.
local function rename(watch_key, registration, ttl, known)
  local present = redis.pcall('GET', watch_key)
  if present and present ~= registration and present ~= known then registration = plus(registration) end
  note(watch_key, registration, ttl, present ~= known and present)
end

-- unregister ends a registration. The one known to this proxy is deleted; another one is emptied, which tells its proxy that the hold was
-- given back and not lost, and stays for the grace longer. One that is empty already stays as it is.
local function unregister(watch_key, known)
  local present = redis.pcall('GET', watch_key)
  if known ~= '' and present == known then
    redis.call('DEL', watch_key)
  elseif present ~= '' then
    redis.call('SET', watch_key, '', 'XX', 'PX', math.max(redis.call('PTTL', watch_key), 0) + grace)
  end
end

-- ended returns 1 if the registration is empty: the hold was given back through another connection. The registration of another LOCK or
-- RENEW does not prove that, since the lease that it set may have expired.
local function ended(watch_key) return watch_key and redis.pcall('GET', watch_key) == '' and 1 or 0 end

-- elsewhere returns 1 if there is a registration other than known, with or without a +: another connection has ended the hold, or has
-- taken it over.
local function elsewhere(watch_key, known)
  local registered = watch_key and redis.pcall('GET', watch_key)
  if type(registered) == 'string' and registered ~= known and registered ~= known .. '+' then return 1 end
  return 0
end

-- foreign returns whether letter X forbids to touch a hold: its registration is not the one known, so that it may be another hold, or
-- another LOCK relies on it, too. An empty known equals no registration.
local function foreign(flags, watch_key, known)
  return string.find(flags, 'X') and (known == '' or redis.pcall('GET', watch_key) ~= known)
end

-- overruled returns, with letter R, whether the owner may since have sent a command through another connection, which a repeated RENEW must
-- not undo: there is a registration that is neither wanted nor known; or it has a +, and the RENEW would shorten the lease, which
-- may be that of the other LOCK.
local function overruled(flags, watch_key, wanted, known, shortens)
  local registered = string.find(flags, 'R') and redis.pcall('GET', watch_key)
  local function is(name) return name ~= '' and (registered == name or registered == name .. '+' and not shortens) end
  return registered and not is(wanted) and not is(known)
end
