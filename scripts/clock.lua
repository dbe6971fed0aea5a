-- clock is the time of Redis, in µs since 1970, for all that a run of the script does.
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
