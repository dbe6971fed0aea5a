-- handoff gives back a hold and, when that frees the lock, gives it to those who wait next, in one step and without a message.
-- What is given back and what is given are the scripts of these names, each with its own KEYS and ARGV, one after the other.
--
-- KEYS    those of the release, then those of each acquire
-- ARGV[1] number of acquires
-- ARGV[2] channel of the lock
-- ARGV[3] letters, for when another connection than ours listens to the channel: T it is somebody else's turn,
--         S what is given may be shared by others, who are told
-- ARGV[4] PUBLISH, SPUBLISH, or BOTH
-- ARGV[5…] for the release and each acquire: name of the script, number of its KEYS, number of its ARGV; then all their ARGV
-- RETURNS what the release returns (2 integers); 1 when it was somebody else's turn, or else 0; then what each acquire returns
--         (5 integers), or five times -9 where it was not reached. When the first of them is not granted, the message is sent.
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
      local listeners = redis.pcall('PUBSUB', asked, ARGV[2]) -- an account that may not ask leaves everybody a turn
      others = others or listeners.err ~= nil or listeners[2] > 1
    end
  end
end
local turn = others and string.find(ARGV[3], 'T')
if not turn then args[4] = args[4] .. 'Q' end
local out = release(keys, args)
out[3] = turn and 1 or 0
-- A release that finds its own hold over may still have cleared away what was left of the lock.
local going = not turn and out[1] ~= -2 and redis.call('EXISTS', keys[1]) == 0
local freed = going
for i = 1, tonumber(ARGV[1]) do
  local acquire, its_keys, its_args = call(i)
  local answer
  if going then
    -- One that fails is told so when it tries for itself; here the lock has been given back already.
    local ok, value = pcall(acquire, its_keys, its_args)
    going = ok and not value.err and value[1] == 1
    if going then answer, freed = value, false end
  end
  for j = 1, 5 do out[#out + 1] = answer and answer[j] or -9 end
end
if freed or going and others and string.find(ARGV[3], 'S') then wake(ARGV[4], ARGV[2], keys) end
return out
