-- handoff gives back a hold and, if that frees the lock, grants it to the next waiters of the same proxy, in one script and without a
-- message. It runs the release and the acquire scripts of the lock's kind. release_args and acquire_args are how many ARGV these have; quiet_arg
-- and quiet_ask is which of them says how they wake others, which the hand-off does itself.
--
-- KEYS    those of acquire, which all steps share
-- ARGV[1] channel of the lock
-- ARGV[2] whom the lock is for, if others wait for it elsewhere:
--         proxies  other proxies get a turn: it is granted to nobody here, and this proxy is the last now
--         others   so do those that have no entry among the proxies
--         share    others may share the lock that is granted, and are woken
--         ''       it makes no difference
-- ARGV[3] PUBLISH, SPUBLISH, or BOTH
-- ARGV[4] this proxy, as one that is woken
-- ARGV[5…] those of the release, then those of each acquire
-- RETURNS what the release returns; the place of this proxy if others were given a turn, 1 if that is for those without an entry, else 0; then
--         what each acquire returns (5 integers), or five times -9 if it granted nothing. If the lock is free and the first acquire grants
--         nothing, the script wakes others; so it does if a named writer reads on, since others may read beside it now.
-- ERRORS  those of the release. Nothing is changed then.

local function args(from, count) return {unpack(ARGV, from, from + count - 1)} end

local turn, share = 0, false
if ARGV[2] ~= '' then
  -- include wake
  local many = waiting(KEYS)
  local others = ARGV[2] ~= 'proxies' and strangers_listen(ARGV[3], KEYS, ARGV[1], ARGV[4])
  if ARGV[2] == 'share' then
    share = many > 0 or others
  elseif many > 0 then
    turn = await(KEYS, ARGV[4], 0, ARGV[3], ARGV[1])
  elseif others then
    turn = 1
  end
end
local giving = args(5, release_args)
if turn == 0 then giving[quiet_arg] = '' end
local code = release(KEYS, giving)
local out = {code, turn}
-- Also a release that returns -1 may leave the lock free: the lease had ended.
local going = turn == 0 and code ~= -2 and may_be_free()
local wakes = going or turn == 0 and code == 1 and giving[2] == 'write'
for first = 5 + release_args, #ARGV, acquire_args do
  local answer
  if going then
    -- An error must not end the script here, since the lock has been given back. The waiter meets it again when it tries by itself.
    local asking = args(first, acquire_args)
    asking[quiet_ask] = ''
    local ok, value = pcall(acquire, KEYS, asking)
    going = ok and not value.err and value[1] == 1
    if going then answer, wakes = value, false end
  end
  for j = 1, 5 do out[#out + 1] = answer and answer[j] or -9 end
end
if wakes or going and share then pcall(wake_others, ARGV[3], KEYS, ARGV[4]) end -- no error here, as above
return out
