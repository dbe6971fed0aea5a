# Works while it holds a lock. gem install redis-client; ruby first.rb redis://localhost:6380 orders page1 page2
require "redis-client"
require "securerandom"

url, name, *pages = ARGV
r = RedisClient.new(url: url, timeout: 5)
# Keep one of these two lines. The first takes a lease: it may be said over any connection, and ends 30 s after the last RENEW. The
# second takes the lock for this connection, which nobody else may use: lockproxy renews it, and frees it when the program dies.
owner, lease = ["OWNER", SecureRandom.uuid], ["EX", 30]
# owner, lease = [], []

# This call may take 10 s longer than others: as long as BLOCK.
r.blocking_call(10, "LOCK", name, *owner, *lease, "BLOCK", 10_000) or abort "#{name}: somebody else has it"
begin
  pages.each do |page|
    r.call("RENEW", name, *owner, *lease) # every 10 s at least; raises when the lock is lost
    puts page; sleep 1 # your work
  end
rescue RedisClient::Error => lost # somebody else may have the lock: stop
  raise
ensure
  r.call("UNLOCK", name, *owner) unless lost
end
