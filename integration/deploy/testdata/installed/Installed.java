import io.github.lockproxy.JedisLocks;
import io.github.lockproxy.Locks;
import io.github.lockproxy.Options;
import java.time.Duration;
import redis.clients.jedis.RedisClient;

/** Takes and gives back a lock of the proxy at a port, with what has been installed. */
class Installed {
  public static void main(String[] args) throws InterruptedException {
    try (RedisClient redis = RedisClient.builder().hostAndPort("127.0.0.1", Integer.parseInt(args[0])).build();
        Locks locks = JedisLocks.of(redis)) {
      try (var held = locks.lock("installed", new Options().wait(Duration.ofSeconds(10)))) {
        held.check();
        if (held.token() == 0 || !redis.exists("installed")) throw new IllegalStateException("it is not held");
      }
      if (redis.exists("installed")) throw new IllegalStateException("it was not given back");
    }
  }
}
