-- tell is how every script wakes those that wait: it stands before the scripts that do. On a cluster Redis keeps two kinds of
-- channels apart, those of SPUBLISH, which only the node of the channel's slot has, and those of PUBLISH, which all have.

-- tell sends a message by PUBLISH, by SPUBLISH, or by BOTH.
local function tell(publish, channel, message)
  if publish == 'BOTH' then
    redis.call('SPUBLISH', channel, message)
    publish = 'PUBLISH'
  end
  redis.call(publish, channel, message)
end
