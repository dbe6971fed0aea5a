# redis-client through lockproxy: every step prints "ok <step>", and the first failure ends the program.
require "redis-client"
require "securerandom"

$stdout.sync = true
HOST, PORT = ENV.fetch("LOCKPROXY_ADDR").split(":")
CONFIG = RedisClient.config(host: HOST, port: PORT, timeout: 5)

def ok(step) = puts("ok #{step}")

def same(got, want)
  raise "#{got.inspect}, want #{want.inspect}" unless got == want
end

def fails(kind, text = "")
  yield
rescue kind => error
  raise unless error.message.include?(text)
else
  raise "no #{kind}"
end

# Runs the block a little later, in a thread of its own.
def soon = Thread.new { sleep 0.3; yield }

# Asks whoever runs this program to delete the lock behind the proxy's back, and waits until the proxy has noticed.
def lose(key)
  puts "lose #{key}"
  $stdin.gets
end

def handshake(r)
  about = r.call("CLIENT", "INFO") # redis-client itself sent HELLO 3
  raise about unless about.include?(" resp=3")
  ok "handshake"
end

def data(r)
  same r.call("SET", "greeting", "hello", ex: 60), "OK"
  same r.call("GET", "greeting"), "hello"
  same r.call("GET", "nothing"), nil
  same r.call("INCRBY", "n", 42), 42
  ok "strings"

  same r.call("HSET", "user", { "name" => "Ada", "born" => 1815 }), 2
  same r.call("HGETALL", "user"), { "name" => "Ada", "born" => "1815" }
  ok "hashes"

  replies = r.pipelined do |pipeline|
    1000.times { |i| pipeline.call("SET", "p:#{i}", i); pipeline.call("GET", "p:#{i}") }
  end
  same replies.each_slice(2).map(&:last), (0...1000).map(&:to_s)
  ok "pipeline"

  all = r.multi { |tx| tx.call("SET", "a", 1); tx.call("INCR", "a"); tx.call("GET", "a") }
  same all, ["OK", 2, "2"]
  ok "transaction"

  done = r.multi(watch: ["a"]) do |tx|
    RedisClient.new(CONFIG).call("SET", "a", "changed by another")
    tx.call("SET", "a", "lost update")
  end
  same done, nil
  same r.call("GET", "a"), "changed by another"
  ok "watch"

  subscription = r.pubsub
  subscription.call("SUBSCRIBE", "news")
  same subscription.next_event(5), ["subscribe", "news", 1]
  heard = r.call("PUBLISH", "news", "extra")
  same heard, 1 unless ENV["LOCKPROXY_NODES"] # one node counts its own
  same subscription.next_event(5), ["message", "news", "extra"]
  subscription.call("UNSUBSCRIBE", "news")
  same subscription.next_event(5), ["unsubscribe", "news", 0]
  subscription.close
  same r.call("GET", "greeting"), "hello"
  ok "pubsub"

  same r.blocking_call(1, "BLPOP", "queue", 1), nil
  soon { r.call("RPUSH", "queue", "job") }
  same r.blocking_call(4, "BLPOP", "queue", 4), ["queue", "job"]
  ok "blocking"

  same r.call("EVAL", "return {KEYS[1], ARGV[1]}", 1, "k", "v"), ["k", "v"]
  sha = r.call("SCRIPT", "LOAD", "return tonumber(ARGV[1]) * 2")
  same r.call("EVALSHA", sha, 0, 21), 42
  r.call("SCRIPT", "FLUSH")
  fails(RedisClient::CommandError, "NOSCRIPT") { r.call("EVALSHA", sha, 0, 21) }
  ok "scripts"
end

# Adds one to a counter in two steps, which only the lock makes safe: the way for pools. blocking_call adds its first
# argument, in seconds, to the read time-out.
def critical(r, key)
  owner = SecureRandom.uuid
  nil until r.blocking_call(2, "LOCK", key, "OWNER", owner, "EX", "30", "BLOCK", 2000)
  begin
    r.call("SET", "counter", r.call("GET", "counter").to_i + 1)
  ensure
    r.call("UNLOCK", key, "OWNER", owner)
  end
end

def locks(r)
  mine = RedisClient.new(CONFIG) # the lock ends with this connection
  same mine.call("LOCK", "plain"), "OK"
  same mine.call("LOCK", "plain"), "OK" # without driver_info no library is named: one holder, who may enter again
  same mine.call("UNLOCK", "plain"), 0
  same mine.call("UNLOCK", "plain"), 1
  fails(RedisClient::CommandError, "NOTHELD") { mine.call("UNLOCK", "plain") }
  ok "lock"

  r.call("SET", "counter", 0)
  8.times.map { Thread.new { 10.times { critical(r, "section") } } }.each(&:join)
  same r.call("GET", "counter"), "80"
  ok "owner"

  # Contention: nil at once, then a wait that the other's UNLOCK ends.
  other = RedisClient.new(CONFIG)
  same mine.call("LOCK", "busy"), "OK"
  same other.call("LOCK", "busy"), nil
  soon { mine.call("UNLOCK", "busy") }
  same other.blocking_call(4, "LOCK", "busy", "BLOCK", 4000), "OK"
  ok "contention"

  # BLOCK shorter than the client's patience: nil. Longer: the client hangs up, and the wait ends with it.
  same r.call("LOCK", "busy", "OWNER", "late", "EX", "30", "BLOCK", 300), nil
  hasty = RedisClient.new(RedisClient.config(host: HOST, port: PORT, timeout: 0.5))
  fails(RedisClient::ReadTimeoutError) { hasty.call("LOCK", "busy", "BLOCK", 60_000) }
  same other.call("UNLOCK", "busy"), 1
  same r.call("LOCK", "busy", "OWNER", "late", "EX", "30", "BLOCK", 4000), "OK"
  same r.call("UNLOCK", "busy", "OWNER", "late"), 1
  ok "block"

  # The news of a lost lock arrives while the connection is idle: later replies must be the right ones.
  same mine.call("LOCK", "lost"), "OK"
  lose "lost"
  20.times do |i|
    same mine.call("SET", "after", i), "OK"
    same mine.call("GET", "after"), i.to_s
  end
  fails(RedisClient::CommandError, "LOCKLOST") { mine.call("UNLOCK", "lost") }
  ok "lost"
end

parts = ENV.fetch("PARTS", "data,locks").split(",")
r = CONFIG.new_pool(size: 8)
handshake(r)
data(r) if parts.include?("data")
locks(r) if parts.include?("locks")
