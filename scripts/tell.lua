-- tell is how every script wakes waiters. On a cluster Redis keeps two kinds of channels apart: a
-- message by SPUBLISH stays with the nodes of the channel's slot, and one by PUBLISH goes to all nodes. Neither reaches subscribers of
-- the other kind.

-- tell sends a message by PUBLISH, by SPUBLISH, or by BOTH.
local function tell(publish, channel, message)
  if publish == 'BOTH' then
    redis.call('SPUBLISH', channel, message)
    publish = 'PUBLISH'
  end
  redis.call(publish, channel, message)
end
