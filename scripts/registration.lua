-- registration is what the scripts share about named owners. Beside a hold of one stands its registration: the name of the LOCK that
-- made the hold, or of the last one whose proxy renews it, with a - before it when nobody does. No two LOCKs have the same name. A +
-- at its end: another LOCK counts on the hold, too, or another registration stood there before, whose proxy has to be told when the
-- hold ends. An empty one tells a proxy that it has ended.

-- plus adds the + that a registration does not have yet.
local function plus(registration) return string.match(registration, '^(.-)%+?$') .. '+' end

-- note writes a registration for ttl ms; in another one's place for as long as that one would have stood there, so that its proxy
-- finds it.
local function note(watch_key, registration, ttl, present)
  if present and present ~= registration then ttl = math.max(ttl, redis.call('PTTL', watch_key)) end
  redis.call('SET', watch_key, registration, 'PX', ttl)
end

-- enrol notes a LOCK: of an owner that held the lock before or not, and whose proxy renews it or not. Only the registration that a
-- LOCK wrote when it made the hold stands there without a plus. It returns whether a hold that nobody renewed is to be renewed from now on.
local function enrol(watch_key, registration, ttl, held, renews)
  if registration == '' and not held then -- on a node of a quorum
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

-- rename notes a RENEW, through the proxy that knows the registration known.
local function rename(watch_key, registration, ttl, known)
  local present = redis.pcall('GET', watch_key)
  if present and present ~= registration and present ~= known then registration = plus(registration) end
  note(watch_key, registration, ttl, present ~= known and present)
end

-- unregister ends a registration: known, our own, is deleted; another one is emptied, which tells its proxy that the hold has ended.
local function unregister(watch_key, known)
  if known ~= '' and redis.pcall('GET', watch_key) == known then
    redis.call('DEL', watch_key)
  else
    redis.call('SET', watch_key, '', 'XX', 'KEEPTTL')
  end
end

-- ended is 1 when the registration says that the hold has been given back through another connection. One that another LOCK or RENEW
-- wrote does not say so: the lease that it set may be over.
local function ended(watch_key) return watch_key and redis.pcall('GET', watch_key) == '' and 1 or 0 end

-- elsewhere is 1 when the registration says that the hold ended, or lives, through another connection than the known one.
local function elsewhere(watch_key, known)
  local registered = watch_key and redis.pcall('GET', watch_key)
  if type(registered) == 'string' and registered ~= known and registered ~= known .. '+' then return 1 end
  return 0
end

-- foreign says whether a hold is another one than was known, or may be: letter R, or X, with which nobody else may count on it.
local function foreign(flags, watch_key, known)
  local strictly = string.find(flags, 'X')
  if not strictly and not string.find(flags, 'R') then return false end
  local registered = redis.pcall('GET', watch_key)
  return known == '' or registered ~= known and (strictly or registered ~= known .. '+')
end

-- overruled says, with letter R, whether a hold's registration is neither of two: its owner has said something since through another
-- connection. Where there is none nobody has.
local function overruled(flags, watch_key, wanted, known)
  return foreign(flags, watch_key, wanted) and foreign(flags, watch_key, known) and redis.pcall('GET', watch_key)
end
