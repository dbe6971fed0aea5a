-- read_release_short stands before read_release in the same script, as acquire_short does before acquire. For a connection it gives back
-- its only read hold, alone or beside at most five other readers with one hold each, or one of its two holds, if nobody else reads. In all
-- other cases read_release goes on. KEYS and ARGV are those of read_release; if ARGV[4] is empty, callers leave out ARGV[4] and ARGV[5].
--
-- RETURNS 1   the owner no longer reads
--         2   it still does, with one hold
--         -2  too late, nothing done

if not ARGV[6] then ARGV[4], ARGV[5], ARGV[6], ARGV[7] = '', '', ARGV[4], ARGV[5] end
local call, lock, holds, publish = redis.call, KEYS[1], KEYS[2], ARGV[2]
if ARGV[4] == '' then
  local seen = call('HMGET', lock, 'mode', ARGV[1])
  local count = seen[2]
  if seen[1] == 'read' and (count == '1' or count == '2') then
    local fields, left, others = call('HLEN', lock), call('PTTL', holds .. ':1'), 0
    if fields > 2 and fields < 8 and count == '1' then
      local all = call('HGETALL', lock)
      for i = 1, 2 * fields, 2 do
        local field = all[i]
        if field ~= 'mode' and field ~= ARGV[1] then
          if all[i + 1] ~= '1' or string.sub(field, -6) == ':write' then
            others = 0
            break
          end
          others = math.max(others, call('PTTL', ARGV[7] .. ':' .. field .. ':rwlock_timeout:1'))
        end
      end
    end
    local newest = 0
    if count == '2' and fields == 2 then newest = call('PTTL', holds .. ':2') end
    if count == '1' and left > 0 and (fields == 2 or others > 0) or newest > 0 then
      local time = call('TIME')
      if time[1] >= ARGV[3] and time[1] * 1000000 + time[2] - ARGV[3] > 1000000 then return -2 end
      if count == '2' then
        call('PEXPIRE', lock, math.max(left, newest))
        call('HSET', lock, ARGV[1], '1')
        call('DEL', holds .. ':2')
        if left < newest then call('SET', holds .. ':1', '1', 'PX', newest) end
        return 2
      end
      if others > 0 then
        call('HDEL', lock, ARGV[1])
        call('PEXPIRE', lock, others)
        call('DEL', holds .. ':1')
        return 1
      end
      if publish == 'BOTH' then
        call('SPUBLISH', KEYS[3], '0')
        publish = 'PUBLISH'
      end
      call(publish, KEYS[3], '0')
      call('DEL', lock, holds .. ':1')
      return 1
    end
  end
end
