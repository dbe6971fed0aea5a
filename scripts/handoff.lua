-- handoff gives back a hold and, if that frees the lock, grants it to the next waiters of the same proxy, in one script and without a
-- message. It runs the release and the acquire scripts of the lock's kind. release_args and acquire_args are how many ARGV these have.
--
-- KEYS    those of acquire, which all steps share
-- ARGV[1] channel of the lock
-- ARGV[2] whom the lock is for, if another connection than the proxy's listens to the channel:
--         turn   others get a turn: publish, and grant the lock to nobody
--         share  others may share the lock that is granted: publish, to wake them
--         ''     it makes no difference
-- ARGV[3] PUBLISH, SPUBLISH, or BOTH
-- ARGV[4…] those of the release, then those of each acquire
-- RETURNS what the release returns; 1 if others were given a turn, else 0; then what each acquire returns (5 integers), or five times -9 if it
--         granted nothing. If the lock is free and the first acquire grants nothing, the script publishes; so it does if a named writer reads on,
--         since others may read beside it now.
-- ERRORS  those of the release. Nothing is changed then.

local function args(from, count) return {unpack(ARGV, from, from + count - 1)} end

local others = false
if ARGV[2] ~= '' then
  for way, asked in pairs({PUBLISH = 'NUMSUB', SPUBLISH = 'SHARDNUMSUB'}) do
    if ARGV[3] == way or ARGV[3] == 'BOTH' then
      local listeners = redis.pcall('PUBSUB', asked, ARGV[1]) -- who may not ask assumes that others listen
      others = others or listeners.err ~= nil or listeners[2] > 1
    end
  end
end
local turn = others and ARGV[2] == 'turn'
local giving = args(4, release_args)
if not turn then giving[quiet_arg] = '' end
local code = release(KEYS, giving)
local out = {code, turn and 1 or 0}
-- Also a release that returns -1 may leave the lock free: the lease had ended.
local going = not turn and code ~= -2 and redis.call('EXISTS', KEYS[1]) == 0
local wakes = going or not turn and code == 1 and giving[2] == 'write'
for first = 4 + release_args, #ARGV, acquire_args do
  local answer
  if going then
    -- An error must not end the script here, since the lock has been given back. The waiter meets it again when it tries by itself.
    local ok, value = pcall(acquire, KEYS, args(first, acquire_args))
    going = ok and not value.err and value[1] == 1
    if going then answer, wakes = value, false end
  end
  for j = 1, 5 do out[#out + 1] = answer and answer[j] or -9 end
end
if wakes or going and others and ARGV[2] == 'share' then pcall(wake, ARGV[3], KEYS) end -- no error here, as above
return out
