-- account says what the user that runs it lacks. It is read only; Redis before 7.0 cannot be asked, and the embedded store has no
-- users: nothing is lacking there.
--
-- ARGV    each a right: commands with their arguments, one of which the user must be allowed, parted by '|', words by blanks
-- RETURNS the numbers, from 1, of those of which it is allowed none

local lacking = {}
if not redis.acl_check_cmd then return lacking end
for i, right in ipairs(ARGV) do
  local allowed = false
  for command in string.gmatch(right, '[^|]+') do
    local words = {}
    for word in string.gmatch(command, '%S+') do words[#words + 1] = word end
    local known, yes = pcall(redis.acl_check_cmd, unpack(words))
    allowed = allowed or yes or not known -- a command that this Redis does not have is not for the user to be allowed
  end
  if not allowed then lacking[#lacking + 1] = i end
end
return lacking
