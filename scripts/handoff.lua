-- handoff gives back a hold and, if that frees the lock, grants it to the next waiters of the same proxy, in one script and without a
-- message. It calls the release and the acquire scripts that ARGV names, each with its own KEYS and ARGV.
--
-- KEYS    those of the release, then those of each acquire
-- ARGV[1] number of acquires
-- ARGV[2] channel of the lock
-- ARGV[3] letters, which count if another connection than the proxy's listens to the channel:
--         T  give others a turn: publish, and grant the lock to nobody
--         S  others may share the lock that is granted: publish, to wake them
-- ARGV[4] PUBLISH, SPUBLISH, or BOTH
-- ARGV[5…] for the release and each acquire: name of the script, number of its KEYS, number of its ARGV; then all their ARGV
-- RETURNS what the release returns (2 integers); 1 if others were given a turn, else 0; then what each acquire returns (5 integers), or
--         five times -9 if it granted nothing. If the lock is free and the first acquire grants nothing, the script publishes.
-- ERRORS  those of the release. Nothing is changed then.

local key, arg = 1, 8 + 3 * tonumber(ARGV[1])
local function call(i)
  local at = 5 + 3 * i
  local keys, args = {}, {}
  for k = 1, tonumber(ARGV[at + 1]) do keys[k] = KEYS[key]; key = key + 1 end
  for a = 1, tonumber(ARGV[at + 2]) do args[a] = ARGV[arg]; arg = arg + 1 end
  return steps[ARGV[at]], keys, args
end

local release, keys, args = call(0)
local others = false
if ARGV[3] ~= '' then
  for way, asked in pairs({PUBLISH = 'NUMSUB', SPUBLISH = 'SHARDNUMSUB'}) do
    if ARGV[4] == way or ARGV[4] == 'BOTH' then
      local listeners = redis.pcall('PUBSUB', asked, ARGV[2]) -- who may not ask assumes that others listen
      others = others or listeners.err ~= nil or listeners[2] > 1
    end
  end
end
local turn = others and string.find(ARGV[3], 'T')
if not turn then args[4] = args[4] .. 'Q' end
local out = release(keys, args)
out[3] = turn and 1 or 0
-- Also a release that returns -1 may leave the lock free: the lease had ended, or read_release has deleted what dead readers left.
local going = not turn and out[1] ~= -2 and redis.call('EXISTS', keys[1]) == 0
local freed = going
for i = 1, tonumber(ARGV[1]) do
  local acquire, its_keys, its_args = call(i)
  local answer
  if going then
    -- An error must not end the script here, since the lock has been given back. The waiter meets it again when it tries by itself.
    local ok, value = pcall(acquire, its_keys, its_args)
    going = ok and not value.err and value[1] == 1
    if going then answer, freed = value, false end
  end
  for j = 1, 5 do out[#out + 1] = answer and answer[j] or -9 end
end
if freed or going and others and string.find(ARGV[3], 'S') then wake(ARGV[4], ARGV[2], keys) end
return out
