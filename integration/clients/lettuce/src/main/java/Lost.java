import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;

/** Lettuce while Redis is lost: each line of the input is something to do, and "did ..." says what the application got. */
public class Lost {
  static final RedisClient CLIENT = RedisClient.create("redis://" + System.getenv("LOCKPROXY_ADDR"));
  static final io.lettuce.core.api.StatefulRedisConnection<String, String> R = CLIENT.connect();

  static void run(String op, String item) throws Exception {
    switch (op) {
      case "ready" -> ready();
      case "get" -> R.sync().get("k");
      case "push" -> R.sync().rpush("list", item);
      case "pipeline" -> {
        for (RedisFuture<?> f : List.of(R.async().rpush("list", item), R.async().get("k"))) f.get();
      }
      case "multi" -> {
        R.sync().multi();
        R.sync().rpush("list", item);
        R.sync().get("k");
        R.sync().exec();
      }
      case "blpop" -> {
        try (var own = CLIENT.connect()) {
          own.sync().blpop(0, "queue");
        }
      }
      default -> {
        var last = new CountDownLatch(1);
        try (var s = CLIENT.connectPubSub()) {
          s.addListener(new RedisPubSubAdapter<>() {
            @Override
            public void message(String channel, String message) {
              if (message.equals("last")) last.countDown();
            }
          });
          s.sync().subscribe("news");
          System.out.println("heard");
          last.await();
        }
      }
    }
  }

  static void ready() throws Exception {
    while (true) {
      try {
        R.sync().ping();
        return;
      } catch (RedisException e) {
        Thread.sleep(50);
      }
    }
  }

  public static void main(String[] args) throws Exception {
    var in = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = in.readLine()) != null; ) {
      String[] words = line.split(" ");
      try {
        run(words[0], words.length > 1 ? words[1] : "");
        System.out.println("did ok");
      } catch (RedisException | ExecutionException e) {
        Throwable why = e instanceof ExecutionException ? e.getCause() : e;
        System.out.println("did " + why.getClass().getSimpleName() + " " + why.getMessage());
      }
    }
    System.exit(0);
  }
}
