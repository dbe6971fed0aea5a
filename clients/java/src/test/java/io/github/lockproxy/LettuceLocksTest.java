package io.github.lockproxy;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandTimeoutException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.AfterAll;

class LettuceLocksTest extends LocksCase {
  private final RedisClient without = RedisClient.create(); // an address

  @AfterAll
  void shutdown() {
    without.shutdown();
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

  @Override
  Client connect(int port) {
    RedisClient redis = RedisClient.create("redis://127.0.0.1:" + port);
    var connection = redis.connect();
    Locks locks = LettuceLocks.of(redis);
    return new Client() {
      @Override
      public Locks locks() {
        return locks;
      }

      @Override
      public Object ask(String... words) {
        var args = new CommandArgs<>(StringCodec.UTF8);
        for (int i = 1; i < words.length; i++) args.add(words[i]);
        var answer = connection.sync().dispatch(new Verb(words[0]), new NestedMultiOutput<>(StringCodec.UTF8), args);
        return answer.size() == 1 ? answer.get(0) : answer;
      }

      @Override
      public void close() {
        redis.shutdown();
      }
    };
  }

  @Override
  Locks oneByOne(int port) {
    var uri = RedisURI.create("127.0.0.1", port);
    return LettuceLocks.of(() -> without.connect(uri));
  }

  @Override
  RuntimeException broken() {
    return new RedisCommandTimeoutException("the write has no answer");
  }
}
