package io.github.lockproxy;

import redis.clients.jedis.BuilderFactory;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.CommandObject;
import redis.clients.jedis.Connection;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.util.SafeEncoder;

class JedisLocksTest extends LocksCase {
  @Override
  Client connect(int port) {
    var pool = new ConnectionPoolConfig();
    pool.setMaxTotal(10);
    RedisClient redis = RedisClient.builder().hostAndPort("127.0.0.1", port).poolConfig(pool).build();
    Locks locks = JedisLocks.of(redis);
    return new Client() {
      @Override
      public Locks locks() {
        return locks;
      }

      @Override
      public Object ask(String... words) {
        byte[] verb = SafeEncoder.encode(words[0]);
        var args = new CommandArguments(() -> verb);
        for (int i = 1; i < words.length; i++) args.add(words[i]);
        return redis.executeCommand(new CommandObject<>(args, BuilderFactory.ENCODED_OBJECT));
      }

      @Override
      public void close() {
        redis.close();
      }
    };
  }

  @Override
  Locks oneByOne(int port) {
    var address = new HostAndPort("127.0.0.1", port);
    var config = DefaultJedisClientConfig.builder().build();
    return JedisLocks.of(() -> new Connection(address, config));
  }

  @Override
  RuntimeException broken() {
    return new JedisConnectionException("the write has no answer");
  }
}
