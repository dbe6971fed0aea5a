import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.JedisShardedPubSub;
import redis.clients.jedis.PushMessage;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.util.JedisClusterCRC16;
import redis.clients.jedis.util.SafeEncoder;

/** Jedis through lockproxy: every step prints "ok &lt;step>", and the first failure ends the program. */
public class Main {
  /** The verbs Jedis has no methods for. */
  enum Verb implements ProtocolCommand {
    LOCK, UNLOCK;

    public byte[] getRaw() {
      return SafeEncoder.encode(name());
    }
  }

  static final HostAndPort ADDRESS = HostAndPort.from(System.getenv("LOCKPROXY_ADDR"));
  static final JedisClientConfig CONFIG = DefaultJedisClientConfig.builder().resp3().socketTimeoutMillis(5000).build();

  static final boolean IN_CLUSTER = "cluster".equals(System.getenv("LOCKPROXY_MODE"));

  /** What an application shares: a client of one Redis, or of a cluster. */
  static UnifiedJedis shared() {
    if (!IN_CLUSTER) return RedisClient.builder().hostAndPort(ADDRESS).clientConfig(CONFIG).build();
    RedisClusterClient r = RedisClusterClient.builder().nodes(Set.of(ADDRESS)).clientConfig(CONFIG).build();
    same(r.getClusterNodes().keySet(), Set.of(ADDRESS.toString()));
    return r;
  }

  /** In cluster mode Jedis has transactions on a node's connection only. */
  static AbstractTransaction transaction(UnifiedJedis r, boolean begun) {
    if (!IN_CLUSTER) return r.transaction(begun);
    return new Transaction(((RedisClusterClient) r).getConnectionFromSlot(JedisClusterCRC16.getSlot("a")), begun, true);
  }

  static void ok(String step) {
    System.out.println("ok " + step);
  }

  static void same(Object got, Object want) {
    if (!Objects.deepEquals(got, want)) throw new AssertionError(got + ", want " + want);
  }

  static String error(Runnable call) {
    try {
      call.run();
    } catch (JedisException e) {
      return e.toString();
    }
    throw new AssertionError("no error");
  }

  static void says(String code, Runnable call) {
    String text = error(call);
    if (!text.contains(code)) throw new AssertionError(text + ", want " + code);
  }

  /** A string, a number or null: what LOCK and UNLOCK answer. */
  static Object text(Object reply) {
    return reply instanceof byte[] bytes ? SafeEncoder.encode(bytes) : reply;
  }

  /** Asks whoever runs this program to delete the lock behind the proxy's back; waits until the proxy has noticed. */
  static void lose(String key) throws Exception {
    System.out.println("lose " + key);
    while (System.in.read() != '\n') {}
  }

  static void handshake() {
    try (Jedis own = new Jedis(ADDRESS, CONFIG)) {
      String about = own.clientInfo(); // HELLO 3 and CLIENT SETINFO were sent by Jedis itself
      if (!about.contains(" resp=3")) throw new AssertionError(about);
      if (about.contains("lib-name") && !about.contains(" lib-name=jedis")) throw new AssertionError(about);
    }
    ok("handshake");
  }

  static void data(UnifiedJedis r) throws Exception {
    r.setex("greeting", 60, "hello");
    same(r.get("greeting"), "hello");
    same(r.get("nothing"), null);
    same(r.incrBy("n", 42), 42L);
    ok("strings");

    same(r.hset("user", Map.of("name", "Ada", "born", "1815")), 2L);
    same(r.hgetAll("user"), Map.of("name", "Ada", "born", "1815"));
    ok("hashes");

    try (var pipeline = r.pipelined()) {
      List<Response<String>> replies = new ArrayList<>();
      for (int i = 0; i < 1000; i++) {
        pipeline.set("p:" + i, "" + i);
        replies.add(pipeline.get("p:" + i));
      }
      pipeline.sync();
      for (int i = 0; i < 1000; i++) same(replies.get(i).get(), "" + i);
    }
    ok("pipeline");

    try (var tx = transaction(r, true)) {
      tx.set("a", "1");
      tx.incr("a");
      tx.get("a");
      same(tx.exec(), List.of("OK", 2L, "2"));
    }
    ok("transaction");

    try (var tx = transaction(r, false)) {
      tx.watch("a");
      r.set("a", "changed by another");
      tx.multi();
      tx.set("a", "lost update");
      same(tx.exec(), null);
    }
    same(r.get("a"), "changed by another");
    ok("watch");

    pubsub(r);
    same(r.get("greeting"), "hello");
    ok("pubsub");

    if (IN_CLUSTER) {
      sharded((RedisClusterClient) r);
      ok("sharded");
    }

    same(r.blpop(1.0, "queue"), null);
    CompletableFuture.delayedExecutor(300, TimeUnit.MILLISECONDS).execute(() -> r.rpush("queue", "job"));
    same(r.blpop(4.0, "queue").getValue(), "job");
    ok("blocking");

    same(r.eval("return {KEYS[1], ARGV[1]}", 1, "k", "v"), List.of("k", "v"));
    String sha = r.scriptLoad("return tonumber(ARGV[1]) * 2");
    same(r.evalsha(sha, 0, "21"), 42L);
    r.scriptFlush();
    says("NOSCRIPT", () -> r.evalsha(sha, 0, "21"));
    ok("scripts");
  }

  static void pubsub(UnifiedJedis r) throws Exception {
    List<String> heard = new CopyOnWriteArrayList<>();
    CountDownLatch listening = new CountDownLatch(1);
    JedisPubSub listener = new JedisPubSub() {
      @Override
      public void onSubscribe(String channel, int count) {
        listening.countDown();
      }

      @Override
      public void onMessage(String channel, String message) {
        heard.add(message);
        unsubscribe(); // subscribe() then returns, and its connection goes back to the pool
      }
    };
    CompletableFuture<Void> done = CompletableFuture.runAsync(() -> r.subscribe(listener, "news"));
    listening.await();
    long hearers = r.publish("news", "extra"); // of several nodes one counts its own
    if (System.getenv("LOCKPROXY_NODES") == null) same(hearers, 1L);
    done.get(5, TimeUnit.SECONDS);
    same(heard, List.of("extra"));
  }

  static void sharded(RedisClusterClient r) throws Exception {
    List<String> heard = new CopyOnWriteArrayList<>();
    CountDownLatch listening = new CountDownLatch(1);
    JedisShardedPubSub listener = new JedisShardedPubSub() {
      @Override
      public void onSSubscribe(String channel, int count) {
        listening.countDown();
      }

      @Override
      public void onSMessage(String channel, String message) {
        heard.add(message);
        sunsubscribe();
      }
    };
    CompletableFuture<Void> done = CompletableFuture.runAsync(() -> r.ssubscribe(listener, "shard"));
    listening.await();
    same(r.spublish("shard", "extra"), 1L);
    done.get(5, TimeUnit.SECONDS);
    same(heard, List.of("extra"));
  }

  /** Adds one to a counter in two steps, which only the lock makes safe: the way for pools. */
  static void critical(UnifiedJedis r, String key) {
    String owner = UUID.randomUUID().toString();
    while (r.sendCommand(Verb.LOCK, key, "OWNER", owner, "EX", "30", "BLOCK", "1000") == null) {}
    try {
      r.set("counter", "" + (Integer.parseInt(r.get("counter")) + 1));
    } finally {
      r.sendCommand(Verb.UNLOCK, key, "OWNER", owner);
    }
  }

  static void locks(UnifiedJedis r) throws Exception {
    Jedis mine = new Jedis(ADDRESS, CONFIG); // the lock ends with this connection
    same(text(mine.sendCommand(Verb.LOCK, "plain")), "OK");
    says("OWNERREQUIRED", () -> mine.sendCommand(Verb.LOCK, "plain"));
    same(text(mine.sendCommand(Verb.LOCK, "plain", "SELF")), "OK");
    same(mine.sendCommand(Verb.UNLOCK, "plain"), 0L);
    same(mine.sendCommand(Verb.UNLOCK, "plain"), 1L);
    says("NOTHELD", () -> mine.sendCommand(Verb.UNLOCK, "plain"));
    ok("lock");

    r.set("counter", "0");
    var workers = Executors.newFixedThreadPool(8);
    for (var done : workers.invokeAll(java.util.Collections.nCopies(80, Executors.callable(() -> critical(r, "section"))))) done.get();
    workers.shutdown();
    same(r.get("counter"), "80");
    ok("owner");

    // Contention: nil at once, then a wait that the other's UNLOCK ends.
    Jedis other = new Jedis(ADDRESS, CONFIG);
    same(text(mine.sendCommand(Verb.LOCK, "busy")), "OK");
    same(other.sendCommand(Verb.LOCK, "busy"), null);
    CompletableFuture.delayedExecutor(300, TimeUnit.MILLISECONDS).execute(() -> mine.sendCommand(Verb.UNLOCK, "busy"));
    same(text(other.sendCommand(Verb.LOCK, "busy", "BLOCK", "4000")), "OK");
    ok("contention");

    // BLOCK shorter than the client's patience: nil. Longer: the pool hangs up, and the wait ends with it.
    same(r.sendCommand(Verb.LOCK, "busy", "OWNER", "late", "EX", "30", "BLOCK", "300"), null);
    var impatient = DefaultJedisClientConfig.builder().resp3().socketTimeoutMillis(500).build();
    try (RedisClient hasty = RedisClient.builder().hostAndPort(ADDRESS).clientConfig(impatient).build()) {
      says("timed out", () -> hasty.sendCommand(Verb.LOCK, "busy", "BLOCK", "60000"));
      same(other.sendCommand(Verb.UNLOCK, "busy"), 1L);
      same(text(r.sendCommand(Verb.LOCK, "busy", "OWNER", "late", "EX", "30", "BLOCK", "4000")), "OK");
      same(r.sendCommand(Verb.UNLOCK, "busy", "OWNER", "late"), 1L);
    }
    ok("block");
  }

  /** Connection shows its pushes to subclasses only. */
  static class Listening extends Connection {
    final List<PushMessage> heard = new CopyOnWriteArrayList<>();

    Listening() {
      super(ADDRESS, CONFIG);
      addPushConsumer(push -> {
        heard.add(push.getMessage());
        return push;
      });
    }
  }

  static void lost(UnifiedJedis r) throws Exception {
    // The news of a lost lock arrives while the connection lies idle in the pool: later replies must be the right ones.
    same(text(r.sendCommand(Verb.LOCK, "lost")), "OK");
    lose("lost");
    for (int i = 0; i < 20; i++) {
      r.set("after", "" + i);
      same(r.get("after"), "" + i);
    }
    says("LOCKLOST", () -> r.sendCommand(Verb.UNLOCK, "lost"));
    ok("lost");

    Listening connection = new Listening();
    try (Jedis own = new Jedis(connection)) {
      same(text(own.sendCommand(Verb.LOCK, "lost")), "OK");
      lose("lost");
      same(own.ping(), "PONG"); // Jedis reads what was pushed with the next reply
      List<Object> push = connection.heard.get(0).getContent();
      same(push.stream().map(Main::text).toList(), List.of("lock-lost", "lost", "plain", "gone"));
    }
    ok("push");
  }

  public static void main(String[] args) throws Exception {
    List<String> parts = Arrays.asList(System.getenv().getOrDefault("PARTS", "data,locks").split(","));
    handshake();
    try (UnifiedJedis r = shared()) {
      if (parts.contains("data")) data(r);
      if (parts.contains("locks")) {
        locks(r);
        lost(r);
      }
    }
    System.exit(0);
  }
}
