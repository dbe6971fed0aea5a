-- account checks which rights the service account lacks. It changes nothing. Redis before 7.0 has no redis.acl_check_cmd, and neither has
-- the embedded store, which has no users: there the script returns that nothing is lacking.
--
-- ARGV    each a right: commands separated by '|', with their arguments, separated by blanks. Whoever may run one of the commands has the
--         right
-- RETURNS the numbers, from 1, of the rights that are lacking

local lacking = {}
if not redis.acl_check_cmd then return lacking end
for i, right in ipairs(ARGV) do
  local allowed = false
  for command in string.gmatch(right, '[^|]+') do
    local words = {}
    for word in string.gmatch(command, '%S+') do words[#words + 1] = word end
    local known, yes = pcall(redis.acl_check_cmd, unpack(words))
    allowed = allowed or yes or not known -- not known: Redis does not have the command, so no right to it is lacking
  end
  if not allowed then lacking[#lacking + 1] = i end
end
return lacking
