package io.github.lockproxy;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.RedisException;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;

/** Locks by Lettuce. */
public final class LettuceLocks {
  private LettuceLocks() {}

  /**
   * Locks over connections of redis that nobody else uses: a LOCK that waits holds up what is sent behind it. The
   * client has been made with the address of a lockproxy.
   */
  public static Locks of(RedisClient redis) {
    return of(() -> redis.connect(StringCodec.UTF8));
  }

  /** Locks over connections that connect makes, for example {@code () -> client.connect(uri)}. */
  public static Locks of(Callable<StatefulRedisConnection<String, String>> connect) {
    return new Locks(new Lettuce(connect));
  }

  private record Lettuce(Callable<StatefulRedisConnection<String, String>> connect) implements Library {
    @Override
    public LockConnection open() throws Exception {
      var one = new One(connect.call());
      one.connection.addListener(one);
      return one;
    }

    @Override
    public boolean isReply(Throwable error) {
      Throwable e = error instanceof RedisConnectionException ? error.getCause() : error; // to the words of the connect
      return e instanceof RedisCommandExecutionException;
    }

    @Override
    public boolean isBroken(Throwable error) {
      return error instanceof RedisException && !isReply(error);
    }
  }

  private record Verb(String text) implements ProtocolKeyword {
    @Override
    public byte[] getBytes() {
      return text.getBytes(StandardCharsets.US_ASCII);
    }

    @Override
    public String toString() {
      return text;
    }
  }

  /** A number, 0 for OK, or null. */
  private static final class Answer extends IntegerOutput<String, String> {
    Answer() {
      super(StringCodec.UTF8);
    }

    @Override
    public void set(ByteBuffer bytes) {
      output = bytes == null ? null : Long.valueOf(0);
    }
  }

  private static final class One implements LockConnection, RedisConnectionStateListener {
    private final StatefulRedisConnection<String, String> connection;
    private final AtomicBoolean closed = new AtomicBoolean();

    One(StatefulRedisConnection<String, String> connection) {
      this.connection = connection;
    }

    @Override
    public Long ask(List<String> words, Duration most) throws Exception {
      connection.setTimeout(most);
      var args = new CommandArgs<>(StringCodec.UTF8);
      for (String word : words.subList(1, words.size())) args.add(word);
      var asked = connection.async().dispatch(new Verb(words.get(0)), new Answer(), args);
      try {
        return asked.get(most.toNanos(), TimeUnit.NANOSECONDS);
      } catch (ExecutionException e) {
        if (e.getCause() instanceof Exception cause) throw cause;
        throw e;
      } catch (TimeoutException e) {
        throw new TimeoutException(words.get(0) + ": no answer within " + most.toMillis() + " ms");
      }
    }

    @Override
    public boolean isOpen() {
      return connection.isOpen();
    }

    @Override
    public void close() {
      if (closed.compareAndSet(false, true)) connection.closeAsync();
    }

    /**
     * Closes a connection that has been interrupted. Lettuce would make it anew and send again what had no answer,
     * UNLOCK included, without a word about it.
     */
    @Override
    public void onRedisDisconnected(RedisChannelHandler<?, ?> interrupted) {
      close();
    }
  }
}
