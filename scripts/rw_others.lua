-- rw_others looks at those that read beside an owner (see rw.lua).

-- few is up to how many other readers a reader looks at when it leaves, so that this costs the same with ten and with ten thousand.
local few = 32

-- others returns for how many ms anybody but one owner, which reads, reads too; nil: there are more readers than may be looked at.
local function others(lock, prefix, owner)
  local fields = redis.call('HLEN', lock)
  if fields == 2 then return 0 end -- the owner's and the mode
  if fields > few + 2 then return nil end
  local left = 0
  for _, field in ipairs(redis.call('HKEYS', lock)) do
    if field ~= owner and field ~= 'mode' and string.sub(field, -6) ~= ':write' then
      left = math.max(left, reads(prefix, field, counted(text(lock, field))))
    end
  end
  return left
end

-- sweep takes readers whose leases are over out of a lock that is held for reading, until it finds one that reads. It returns whether
-- the lock is free then, and whether it had to stop before it knew.
local function sweep(lock, prefix, except)
  local cursor = '0'
  repeat
    local page = redis.call('HSCAN', lock, cursor, 'COUNT', 100)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      local field = page[2][i]
      if field ~= 'mode' then
        if not may_look() then return false, true end
        if field ~= except and reads(prefix, field, counted(page[2][i + 1])) > 0 then return false, false end
        redis.call('HDEL', lock, field)
      end
    end
  until cursor == '0'
  redis.call('DEL', lock)
  return true, false
end
