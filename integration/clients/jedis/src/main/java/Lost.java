import java.io.BufferedReader;
import java.io.InputStreamReader;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.RedisClient;

/** Jedis while Redis is lost: each line of the input is something to do, and "did ..." says what the application got. */
public class Lost {
  static final RedisClient R = RedisClient.builder().hostAndPort(HostAndPort.from(System.getenv("LOCKPROXY_ADDR"))).build();

  static void run(String op, String item) throws Exception {
    switch (op) {
      case "ready" -> ready();
      case "get" -> R.get("k");
      case "push" -> R.rpush("list", item);
      case "pipeline" -> {
        try (var p = R.pipelined()) {
          p.rpush("list", item);
          var got = p.get("k");
          p.sync();
          got.get();
        }
      }
      case "multi" -> {
        try (AbstractTransaction t = R.multi()) {
          t.rpush("list", item);
          t.get("k");
          t.exec();
        }
      }
      case "blpop" -> R.blpop(0, "queue");
      default -> R.subscribe(new JedisPubSub() {
        @Override
        public void onSubscribe(String channel, int n) {
          System.out.println("heard");
        }

        @Override
        public void onMessage(String channel, String message) {
          if (message.equals("last")) unsubscribe();
        }
      }, "news");
    }
  }

  static void ready() throws Exception {
    while (true) {
      try {
        R.ping();
        return;
      } catch (RuntimeException e) {
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
      } catch (RuntimeException e) {
        System.out.println("did " + e.getClass().getSimpleName() + " " + e.getMessage());
      }
    }
    System.exit(0);
  }
}
