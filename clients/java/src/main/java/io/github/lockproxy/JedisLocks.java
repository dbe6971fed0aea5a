package io.github.lockproxy;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.Callable;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.util.SafeEncoder;

/** Locks by Jedis. */
public final class JedisLocks {
  private JedisLocks() {}

  /**
   * Locks whose connections are made as those of redis are, beside its pool: waiters must not use up the connections
   * that a holder needs.
   */
  public static Locks of(RedisClient redis) {
    var factory = redis.getPool().getFactory();
    return of(() -> factory.makeObject().getObject());
  }

  /** Locks over connections that connect makes, for example {@code () -> new Connection(address, config)}. */
  public static Locks of(Callable<Connection> connect) {
    return new Locks(new Jedis(connect));
  }

  private record Jedis(Callable<Connection> connect) implements Library {
    @Override
    public LockConnection open() throws Exception {
      return new One(connect.call());
    }

    @Override
    public boolean isReply(Throwable error) {
      return error instanceof JedisDataException;
    }

    @Override
    public boolean isBroken(Throwable error) {
      return error instanceof JedisConnectionException;
    }
  }

  private record One(Connection connection) implements LockConnection {
    @Override
    public Long ask(List<String> words, Duration most) {
      int ms = (int) Math.min(most.toMillis(), Integer.MAX_VALUE);
      if (connection.getSoTimeout() != ms) connection.setSoTimeout(ms);
      byte[] verb = SafeEncoder.encode(words.get(0));
      var command = new CommandArguments(() -> verb);
      for (String word : words.subList(1, words.size())) command.add(word);
      Object answer = connection.executeCommand(command);
      return answer instanceof byte[] ? Long.valueOf(0) : (Long) answer;
    }

    @Override
    public boolean isOpen() {
      return connection.isConnected() && !connection.isBroken();
    }

    @Override
    public void close() {
      try {
        connection.forceDisconnect();
      } catch (IOException e) {
        // It is closed already.
      }
    }
  }
}
