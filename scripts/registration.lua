-- registration has what the scripts share about named owners. Each hold of a named owner has a registration, a key beside the lock. Its
-- value is the name of the LOCK that made the hold, or of the LOCK or RENEW whose proxy has taken the hold over; no two of these have the
-- same name.
--   -name  no watchdog renews the hold
--   name+  another LOCK relies on the hold, too
--   name~  nobody else relies on it, but the registration has replaced that of an earlier hold, whose proxy must be told when this one ends
--   empty  the hold was given back, so that a proxy that still counts on it learns that it was not lost

-- parts returns the name in a registration, with its -, and what stands after it; nil and an empty string if there is no registration.
local function parts(registration)
  if type(registration) ~= 'string' then return nil, '' end
  return string.match(registration, '^(.-)([~+]*)$')
end

-- names returns whether a registration has that name, whatever stands after it. No name equals no registration.
local function names(registration, name) return name ~= '' and (registration == name or parts(registration) == name) end

-- unnamed is the registration of a hold that had none when another LOCK came to rely on it: Redis has evicted it, or on a quorum an attempt
-- that was taken back has taken it away. Whoever renews the hold writes its own name again.
local unnamed = '+'

-- grace is for how many ms an empty registration outlives the hold: its proxy looks when the lease is over by its own clock.
local grace = 2000

-- note writes a registration with a TTL of ttl ms. If it replaces another one, or has done so, it stays at least as long as the one present
-- would have, so that the other one's proxy finds it. The grace of an empty one is not kept, because unregister would add another to it each
-- time.
local function note(watch_key, registration, ttl, present)
  if present and (present ~= registration or string.sub(registration, -1) == '~') then
    ttl = math.max(ttl, redis.call('PTTL', watch_key) - (present == '' and grace or 0))
  end
  redis.call('SET', watch_key, registration, 'PX', ttl)
end

-- quorum is true on a node of a quorum.
local quorum = false

-- enrol writes the registration of a LOCK. held says whether the owner held the lock before, renews whether the watchdog is to renew it
-- from now on. On a quorum a new hold that is not renewed gets none. If its proxy knows of no older one, it gets an empty one, so that a
-- proxy which still renews an older one does not take this one for that; else the next renewal writes that of the older one, if other nodes
-- have that. enrol returns whether renewals begin for a hold that no watchdog renewed before; on a quorum that is also one with an empty
-- registration.
local function enrol(watch_key, registration, ttl, held, renews)
  if quorum and not held and not renews then -- a registration found here is of a hold that has ended
    local left = redis.call('PTTL', watch_key)
    if left ~= -2 or registration == '' then redis.call('SET', watch_key, '', 'PX', math.max(left, ttl)) end
    return
  end
  local present = redis.pcall('GET', watch_key)
  if held then
    local name, mark = parts(present)
    if name == registration or renews and name == '-' .. registration then -- the hold is this proxy's already
      registration = registration .. mark
    elseif not renews and name and registration == '-' .. name then -- so it is, and renewed there
      registration = present
    elseif renews then
      registration = registration .. '+'
    else
      registration = (name or '') .. '+'
    end
  elseif present and present ~= registration then
    registration = registration .. '~'
  end
  note(watch_key, registration, ttl, present)
  return held and renews and (type(present) == 'string' and string.sub(present, 1, 1) == '-' or quorum and present == '')
end

-- rename writes the registration of a RENEW; known is the one that its proxy knew so far.
local function rename(watch_key, registration, ttl, known)
  local present = redis.pcall('GET', watch_key)
  if names(present, registration) or names(present, known) then
    registration = registration .. select(2, parts(present))
  elseif present and present ~= known then
    registration = registration .. '+'
  end
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

-- elsewhere returns 1 if there is a registration with a name that is not known's: another connection has ended the hold, or has taken it over.
local function elsewhere(watch_key, known)
  local registered = watch_key and redis.pcall('GET', watch_key)
  if type(registered) == 'string' and registered ~= unnamed and not names(registered, known) then return 1 end
  return 0
end

-- foreign returns whether letter X forbids to touch a hold: its registration has another name than known, so that it may be another hold, or
-- another LOCK relies on it, too.
local function foreign(flags, watch_key, known)
  local registered = string.find(flags, 'X') and redis.pcall('GET', watch_key)
  if registered == nil then return false end
  return not names(registered, known) or string.sub(registered, -1) == '+'
end

-- overruled returns, with letter R, whether the owner may since have sent a command through another connection, which a repeated RENEW must
-- not undo: there is a registration with neither of the names wanted and known; or another LOCK relies on the hold, too, and the RENEW would
-- shorten the lease, which may be that of the other LOCK.
local function overruled(flags, watch_key, wanted, known, shortens)
  local registered = string.find(flags, 'R') and redis.pcall('GET', watch_key)
  if not registered then return false end
  if not names(registered, wanted) and not names(registered, known) then return true end
  return shortens and string.sub(registered, -1) == '+'
end
