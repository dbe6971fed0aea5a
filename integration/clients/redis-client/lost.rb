# redis-client while Redis is lost: each line of the input is something to do, and "did ..." says what the application got.
require "redis-client"

$stdout.sync = true
HOST, PORT = ENV.fetch("LOCKPROXY_ADDR").split(":")
CONFIG = RedisClient.config(host: HOST, port: PORT)
R = CONFIG.new_client

def ready
  R.call("PING")
rescue RedisClient::Error
  sleep 0.05
  retry
end

def both(batch, item)
  batch.call("RPUSH", "list", item)
  batch.call("GET", "k")
end

def subscribe
  s = CONFIG.new_client.pubsub
  s.call("SUBSCRIBE", "news")
  loop do
    kind, _, text = s.next_event(30)
    puts "heard" if kind == "subscribe"
    return if text == "last"
  end
end

DO = {
  "ready" => ->(_) { ready },
  "get" => ->(_) { R.call("GET", "k") },
  "push" => ->(item) { R.call("RPUSH", "list", item) },
  "pipeline" => ->(item) { R.pipelined { |p| both(p, item) } },
  "multi" => ->(item) { R.multi { |p| both(p, item) } },
  "blpop" => ->(_) { R.blocking_call(0, "BLPOP", "queue", 0) },
  "subscribe" => ->(_) { subscribe },
}
while (line = $stdin.gets)
  op, item = line.split
  begin
    DO[op].call(item)
    puts "did ok"
  rescue RedisClient::Error => error
    puts "did #{error.class} #{error.message.lines.first&.strip}"
  end
end
