import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.push.PushMessage;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.async.RedisClusterAsyncCommands;
import io.lettuce.core.cluster.api.sync.RedisClusterCommands;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.output.StatusOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.support.ConnectionPoolSupport;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.commons.pool2.impl.GenericObjectPool;
import org.apache.commons.pool2.impl.GenericObjectPoolConfig;

/** Lettuce through lockproxy: every step prints "ok &lt;step>", and the first failure ends the program. */
public class Main {
  /** The verbs Lettuce has no methods for. */
  enum Verb implements ProtocolKeyword {
    LOCK, UNLOCK;

    public byte[] getBytes() {
      return name().getBytes(StandardCharsets.US_ASCII);
    }
  }

  /** LOCK: whether it was granted. */
  static boolean lock(RedisClusterCommands<String, String> r, String key, String... options) {
    return r.dispatch(Verb.LOCK, new StatusOutput<>(StringCodec.UTF8), args(key, options)) != null;
  }

  /** UNLOCK: whether the lock is free of this owner now. */
  static boolean unlock(RedisClusterCommands<String, String> r, String key, String... options) {
    return r.dispatch(Verb.UNLOCK, new IntegerOutput<>(StringCodec.UTF8), args(key, options)) == 1;
  }

  static CommandArgs<String, String> args(String key, String... options) {
    CommandArgs<String, String> args = new CommandArgs<>(StringCodec.UTF8).addKey(key);
    Arrays.stream(options).forEach(args::add);
    return args;
  }

  static final boolean IN_CLUSTER = "cluster".equals(System.getenv("LOCKPROXY_MODE"));
  static final List<String> PARTS = Arrays.asList(System.getenv().getOrDefault("PARTS", "data,caching,locks").split(","));
  static final RedisURI URI = RedisURI.create("redis://" + System.getenv("LOCKPROXY_ADDR"));

  /** What an application shares: a connection to one Redis, or to a cluster. */
  interface Shared {
    RedisClusterCommands<String, String> sync();

    RedisClusterAsyncCommands<String, String> async();

    StatefulRedisConnection<String, String> own() throws Exception; // for MULTI and blocking pops, which want one that nobody shares

    StatefulRedisPubSubConnection<String, String> listener();
  }

  static Shared shared(RedisClient client) {
    if (IN_CLUSTER) return sharedInCluster();
    var connection = client.connect();
    return new Shared() {
      public RedisClusterCommands<String, String> sync() {
        return connection.sync();
      }

      public RedisClusterAsyncCommands<String, String> async() {
        return connection.async();
      }

      public StatefulRedisConnection<String, String> own() {
        return client.connect();
      }

      public StatefulRedisPubSubConnection<String, String> listener() {
        return client.connectPubSub();
      }
    };
  }

  static Shared sharedInCluster() {
    RedisClusterClient client = RedisClusterClient.create(URI);
    client.setOptions(ClusterClientOptions.builder().protocolVersion(ProtocolVersion.RESP3).build());
    var connection = client.connect();
    same(connection.getPartitions().size(), 1);
    same(connection.getPartitions().getPartition(0).getSlots().size(), 16384);
    return new Shared() {
      public RedisClusterCommands<String, String> sync() {
        return connection.sync();
      }

      public RedisClusterAsyncCommands<String, String> async() {
        return connection.async();
      }

      public StatefulRedisConnection<String, String> own() {
        return client.connect().getConnection(URI.getHost(), URI.getPort());
      }

      public StatefulRedisPubSubConnection<String, String> listener() {
        return client.connectPubSub();
      }
    };
  }

  static void ok(String step) {
    System.out.println("ok " + step);
  }

  static void same(Object got, Object want) {
    if (!Objects.deepEquals(got, want)) throw new AssertionError(got + ", want " + want);
  }

  static void says(String words, Runnable call) {
    try {
      call.run();
    } catch (RedisException e) {
      if (e.toString().contains(words)) return;
      throw e;
    }
    throw new AssertionError("no error, want " + words);
  }

  static void until(Callable<Boolean> happened) throws Exception {
    for (int i = 0; i < 500; i++) {
      if (happened.call()) return;
      Thread.sleep(10);
    }
    throw new AssertionError("never happened");
  }

  /** Asks whoever runs this program to delete the lock behind the proxy's back; waits until the proxy has noticed. */
  static void lose(String key) throws Exception {
    System.out.println("lose " + key);
    while (System.in.read() != '\n') {}
  }

  static void handshake(RedisClusterCommands<String, String> r) {
    String about = r.clientInfo(); // HELLO 3 and CLIENT SETINFO were sent by Lettuce itself
    if (!about.contains(" resp=3")) throw new AssertionError(about);
    if (about.contains("lib-name") && !about.contains(" lib-name=Lettuce")) throw new AssertionError(about);
    ok("handshake");
  }

  static void data(Shared shared) throws Exception {
    var r = shared.sync();
    r.setex("greeting", 60, "hello");
    same(r.get("greeting"), "hello");
    same(r.get("nothing"), null);
    same(r.incrby("n", 42), 42L);
    ok("strings");

    same(r.hset("user", Map.of("name", "Ada", "born", "1815")), 2L);
    same(r.hgetall("user"), Map.of("name", "Ada", "born", "1815"));
    ok("hashes");

    List<RedisFuture<String>> replies = new ArrayList<>();
    for (int i = 0; i < 1000; i++) {
      shared.async().set("p:" + i, "" + i);
      replies.add(shared.async().get("p:" + i));
    }
    for (int i = 0; i < 1000; i++) same(replies.get(i).get(), "" + i);
    ok("pipeline");

    var own = shared.own();
    var mine = own.sync();
    mine.multi();
    mine.set("a", "1");
    mine.incr("a");
    mine.get("a");
    same(mine.exec().stream().toList(), List.of("OK", 2L, "2"));
    ok("transaction");

    mine.watch("a");
    r.set("a", "changed by another");
    mine.multi();
    mine.set("a", "lost update");
    same(mine.exec().wasDiscarded(), true);
    same(r.get("a"), "changed by another");
    ok("watch");

    pubsub(shared, r);
    ok("pubsub");

    if (IN_CLUSTER) {
      sharded(shared);
      ok("sharded");
    }

    same(mine.blpop(1.0, "queue"), null);
    CompletableFuture.delayedExecutor(300, TimeUnit.MILLISECONDS).execute(() -> r.rpush("queue", "job"));
    same(mine.blpop(4.0, "queue").getValue(), "job");
    ok("blocking");

    same(r.eval("return {KEYS[1], ARGV[1]}", ScriptOutputType.MULTI, new String[] {"k"}, "v"), List.of("k", "v"));
    String sha = r.scriptLoad("return tonumber(ARGV[1]) * 2");
    same(r.evalsha(sha, ScriptOutputType.INTEGER, new String[0], "21"), 42L);
    r.scriptFlush();
    says("NOSCRIPT", () -> r.evalsha(sha, ScriptOutputType.INTEGER, new String[0], "21"));
    ok("scripts");

    if (caching()) cached(own, r);
    own.close();
  }

  static boolean caching() {
    return !IN_CLUSTER && PARTS.contains("caching");
  }

  static void cached(StatefulRedisConnection<String, String> own, RedisClusterCommands<String, String> r) throws Exception {
    var cache = ClientSideCaching.enable(CacheAccessor.forMap(new ConcurrentHashMap<>()), own, TrackingArgs.Builder.enabled());
    r.set("cached", "old");
    same(cache.get("cached"), "old");
    r.set("cached", "new");
    until(() -> "new".equals(cache.get("cached")));
    ok("caching");
  }

  static void pubsub(Shared shared, RedisClusterCommands<String, String> r) throws Exception {
    try (var connection = shared.listener()) {
      List<String> heard = new CopyOnWriteArrayList<>();
      connection.addListener(new RedisPubSubAdapter<>() {
        @Override
        public void message(String channel, String message) {
          heard.add(channel + " " + message);
        }

        @Override
        public void unsubscribed(String channel, long count) {
          heard.add(channel + " over");
        }
      });
      connection.sync().subscribe("news");
      long hearers = r.publish("news", "extra"); // of several nodes one counts its own
      if (System.getenv("LOCKPROXY_NODES") == null) same(hearers, 1L);
      until(() -> heard.size() == 1);
      connection.sync().unsubscribe("news");
      until(() -> heard.equals(List.of("news extra", "news over")));
      same(connection.sync().get("a"), "changed by another");
    }
  }

  static void sharded(Shared shared) throws Exception {
    try (var connection = shared.listener()) {
      List<String> heard = new CopyOnWriteArrayList<>();
      connection.addListener(new RedisPubSubAdapter<>() {
        @Override
        public void smessage(String channel, String message) {
          heard.add(channel + " " + message);
        }
      });
      List<String> channels = List.of("shard", "shard:1", "shard:2"); // of three slots, on one connection
      for (String channel : channels) connection.sync().ssubscribe(channel);
      for (String channel : channels) same(shared.sync().spublish(channel, "extra"), 1L);
      until(() -> heard.size() == 3);
      same(Set.copyOf(heard), Set.of("shard extra", "shard:1 extra", "shard:2 extra"));
    }
  }

  /** Adds one to a counter in two steps, which only the lock makes safe: the way for pools. */
  static void critical(RedisClusterCommands<String, String> r, String key) {
    String owner = UUID.randomUUID().toString();
    while (!lock(r, key, "OWNER", owner, "EX", "30", "BLOCK", "2000")) {}
    try {
      r.set("counter", "" + (Integer.parseInt(r.get("counter")) + 1));
    } finally {
      unlock(r, key, "OWNER", owner);
    }
  }

  static void locks(RedisClient client, RedisClusterCommands<String, String> r) throws Exception {
    var mine = client.connect().sync(); // the lock ends with this connection
    same(lock(mine, "plain"), true);
    says("OWNERREQUIRED", () -> lock(mine, "plain"));
    same(lock(mine, "plain", "SELF"), true);
    same(unlock(mine, "plain"), false);
    same(unlock(mine, "plain"), true);
    says("NOTHELD", () -> unlock(mine, "plain"));
    ok("lock");

    // A LOCK that waits holds up its connection: in a pool it keeps nobody else waiting.
    var size = new GenericObjectPoolConfig<StatefulRedisConnection<String, String>>();
    try (GenericObjectPool<StatefulRedisConnection<String, String>> pool = ConnectionPoolSupport.createGenericObjectPool(client::connect, size)) {
      r.set("counter", "0");
      Callable<Void> section = () -> {
        try (var connection = pool.borrowObject()) {
          critical(connection.sync(), "section");
        }
        return null;
      };
      var workers = Executors.newFixedThreadPool(8);
      for (var done : workers.invokeAll(Collections.nCopies(80, section))) done.get();
      workers.shutdown();
    }
    same(r.get("counter"), "80");
    ok("owner");

    // Contention: nil at once, then a wait that the other's UNLOCK ends.
    var other = client.connect().sync();
    same(lock(mine, "busy"), true);
    same(lock(other, "busy"), false);
    CompletableFuture.delayedExecutor(300, TimeUnit.MILLISECONDS).execute(() -> unlock(mine, "busy"));
    same(lock(other, "busy", "BLOCK", "4000"), true);
    ok("contention");

    // BLOCK shorter than the client's patience: nil. Longer: it gives up, but the connection lives, and so does the wait.
    // Only closing the connection ends it.
    same(lock(r, "busy", "OWNER", "late", "EX", "30", "BLOCK", "300"), false);
    var hasty = client.connect();
    hasty.setTimeout(Duration.ofMillis(500));
    says("timed out", () -> lock(hasty.sync(), "busy", "BLOCK", "60000"));
    hasty.close();
    same(unlock(other, "busy"), true);
    same(lock(r, "busy", "OWNER", "late", "EX", "30", "BLOCK", "4000"), true);
    same(unlock(r, "busy", "OWNER", "late"), true);
    ok("block");
  }

  /** The news of a lost lock arrives while the connection is idle; later replies must be the right ones. */
  static void lost(StatefulRedisConnection<String, String> shared) throws Exception {
    List<PushMessage> heard = new CopyOnWriteArrayList<>();
    shared.addListener(push -> heard.add(push));
    RedisClusterCommands<String, String> r = shared.sync();
    same(lock(r, "lost"), true);
    lose("lost");
    for (int i = 0; i < 20; i++) {
      r.set("after", "" + i);
      same(r.get("after"), "" + i);
    }
    says("LOCKLOST", () -> unlock(r, "lost"));
    ok("lost");

    until(() -> heard.size() == 1);
    same(heard.get(0).getType(), "lock-lost");
    same(heard.get(0).getContent(Main::text).subList(1, 4), List.of("lost", "plain", "gone"));
    ok("push");
  }

  static Object text(ByteBuffer bytes) {
    return StandardCharsets.UTF_8.decode(bytes).toString();
  }

  public static void main(String[] args) throws Exception {
    RedisClient client = RedisClient.create(URI);
    client.setOptions(ClientOptions.builder().protocolVersion(ProtocolVersion.RESP3).build());
    Shared shared = shared(client);
    handshake(shared.sync());
    if (PARTS.contains("data")) data(shared);
    if (PARTS.contains("locks")) {
      locks(client, shared.sync());
      lost(shared.own());
    }
    client.shutdown();
    System.exit(0);
  }
}
