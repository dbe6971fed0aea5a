-- write_release_short stands before write_release in the same script, as acquire_short does before acquire. For a connection it gives back
-- its only write hold, if it does not also read, or one of its two write holds. In all other cases write_release goes on. KEYS and ARGV are
-- those of write_release; if ARGV[4] is empty, callers leave out ARGV[4] and ARGV[5].
--
-- RETURNS 1   the lock is free
--         2   this owner still holds it, once
--         -2  too late, nothing done

if not ARGV[6] then ARGV[4], ARGV[5], ARGV[6], ARGV[7] = '', '', ARGV[4], ARGV[5] end
local call, lock, publish = redis.call, KEYS[1], ARGV[2]
if ARGV[4] == '' then
  local seen = call('HMGET', lock, 'mode', ARGV[1], ARGV[6])
  if seen[1] == 'write' and (seen[2] == '1' and not seen[3] or seen[2] == '2') then
    local time = call('TIME')
    if time[1] >= ARGV[3] and time[1] * 1000000 + time[2] - ARGV[3] > 1000000 then return -2 end
    if seen[2] == '2' then
      call('HDEL', lock, '') -- as allow_writes
      call('HSET', lock, ARGV[1], '1')
      return 2
    end
    if publish == 'BOTH' then
      call('SPUBLISH', KEYS[2], '1')
      publish = 'PUBLISH'
    end
    call(publish, KEYS[2], '1')
    call('DEL', lock)
    return 1
  end
end
