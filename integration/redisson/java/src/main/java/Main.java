import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.Config;
import org.redisson.config.ReadMode;

/**
 * Redisson by remote control. Each line of standard input is "id, client, thread, command, arguments", parted by tabs;
 * each line of standard output is "id, answer", or "id, !exception". A thread of Java keeps its locks, so every name of a
 * thread stands for one thread, which works off its commands in turn. At the end of the input the program ends.
 */
public class Main {
  static final Map<String, RedissonClient> CLIENTS = new ConcurrentHashMap<>();
  static final Map<String, ExecutorService> THREADS = new ConcurrentHashMap<>();
  static final Map<String, RLock> LOCKS = new ConcurrentHashMap<>();
  static final Map<String, String> PERMITS = new ConcurrentHashMap<>();
  static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split("\t", -1);
      THREADS
          .computeIfAbsent(words[1] + "/" + words[2], name -> Executors.newSingleThreadExecutor())
          .execute(() -> answer(words));
    }
    Runtime.getRuntime().halt(0);
  }

  static void answer(String[] words) {
    String text;
    try {
      text = String.valueOf(run(words[1], words[3], words));
    } catch (InvocationTargetException e) {
      text = causes(e.getCause());
    } catch (Throwable e) {
      text = causes(e);
    }
    synchronized (OUT) {
      OUT.println(words[0] + "\t" + text.replaceAll("\\s+", " "));
    }
  }

  /** What Redisson has to say is often a cause's cause. */
  static String causes(Throwable e) {
    StringBuilder text = new StringBuilder("!").append(e);
    for (Throwable cause = e.getCause(); cause != null; cause = cause.getCause()) {
      text.append(" because of ").append(cause);
    }
    return text.toString();
  }

  static Object run(String client, String command, String[] w) throws Exception {
    if (command.equals("has")) return has(w[4]);
    if (command.equals("connect")) return connect(client, w[4], w[5], Long.parseLong(w[6]));
    RedissonClient redisson = CLIENTS.get(client);
    switch (command) {
      case "shutdown":
        redisson.shutdown();
        return true;
      case "get":
        return redisson.getBucket(w[4]).get();
      case "owner":
        return redisson.getId() + ":" + Thread.currentThread().getId();
      case "hammer":
        return hammer(client, redisson, w[4], w[5], w[6], Integer.parseInt(w[7]));
    }
    if (command.startsWith("lock.")) return lock(client, redisson, command.substring(5), w);
    return other(redisson, command, w);
  }

  /** Is there a class, or class#method? */
  static boolean has(String name) throws Exception {
    String[] parts = name.split("#");
    try {
      Class<?> type = Class.forName(parts[0]);
      return parts.length == 1
          || Arrays.stream(type.getMethods()).anyMatch(method -> method.getName().equals(parts[1]));
    } catch (ClassNotFoundException e) {
      return false;
    }
  }

  /** Which newer features there are is asked at run time: the program is built with every version. */
  static Object connect(String client, String address, String mode, long watchdog) throws Exception {
    Config config = new Config().setCodec(StringCodec.INSTANCE).setThreads(4).setNettyThreads(4);
    config.setLockWatchdogTimeout(watchdog);
    String[] urls = Arrays.stream(address.split(",")).map(a -> "redis://" + a).toArray(String[]::new);
    // Where there are replicas, too, reads are the master's: the tests count with them.
    switch (mode) {
      case "master": // only with more than one kind of server does Redisson wait for replicas
        few(config.useMasterSlaveServers().setMasterAddress(urls[0])).setRetryAttempts(1);
        break;
      case "cluster":
        few(config.useClusterServers().setScanInterval(1000).addNodeAddress(urls));
        break;
      case "sentinel":
        few(config.useSentinelServers().setMasterName("main").setScanInterval(1000).addSentinelAddress(urls));
        break;
      default:
        config.useSingleServer().setAddress(urls[0]).setConnectionMinimumIdleSize(2).setConnectionPoolSize(32);
    }
    if (mode.equals("resp3")) {
      @SuppressWarnings({"unchecked", "rawtypes"})
      Object protocol = Enum.valueOf((Class) Class.forName("org.redisson.config.Protocol"), "RESP3");
      Config.class.getMethod("setProtocol", protocol.getClass()).invoke(config, protocol);
    }
    CLIENTS.put(client, Redisson.create(config));
    return "OK";
  }

  /** Connections as few as a small machine likes them. */
  static <T extends BaseMasterSlaveServersConfig<T>> T few(T servers) {
    return servers.setReadMode(ReadMode.MASTER).setMasterConnectionMinimumIdleSize(2).setMasterConnectionPoolSize(32)
        .setSlaveConnectionMinimumIdleSize(1);
  }

  static RLock find(RedissonClient redisson, String kind, String name) throws Exception {
    switch (kind) {
      case "plain":
        return redisson.getLock(name);
      case "fair":
        return redisson.getFairLock(name);
      case "read":
        return redisson.getReadWriteLock(name).readLock();
      case "write":
        return redisson.getReadWriteLock(name).writeLock();
      case "spin":
        return redisson.getSpinLock(name);
      case "fenced":
        return (RLock) RedissonClient.class.getMethod("getFencedLock", String.class).invoke(redisson, name);
      case "multi":
        String[] names = name.split(",");
        RLock[] locks = new RLock[names.length];
        for (int i = 0; i < names.length; i++) locks[i] = redisson.getLock(names[i]);
        return redisson.getMultiLock(locks);
    }
    throw new IllegalArgumentException(kind);
  }

  static RLock cached(String client, RedissonClient redisson, String kind, String name) throws Exception {
    String key = client + "\t" + kind + "\t" + name;
    RLock lock = LOCKS.get(key);
    if (lock == null) {
      lock = find(redisson, kind, name);
      LOCKS.put(key, lock);
    }
    return lock;
  }

  /**
   * A place of a lock that several may hold, as many as the number behind "limit"; the thread keeps its permit's id. Redisson
   * has no watchdog for it: a lease of 0 has no end.
   */
  static Object permit(String client, RedissonClient redisson, String command, String[] w) throws Exception {
    RPermitExpirableSemaphore semaphore = redisson.getPermitExpirableSemaphore(w[5]);
    String key = client + "\t" + Thread.currentThread().getId() + "\t" + w[5];
    if (command.equals("unlock")) {
      String id = PERMITS.remove(key);
      if (id == null || !semaphore.tryRelease(id)) throw new IllegalMonitorStateException("no permit " + id);
      return true;
    }
    semaphore.trySetPermits(Integer.parseInt(w[4].substring("limit ".length())));
    long wait = command.equals("lock") ? 3_600_000 : command.equals("try") ? Long.parseLong(w[6]) : 0;
    long lease = command.equals("once") ? 0 : Long.parseLong(w[command.equals("lock") ? 6 : 7]);
    String id = semaphore.tryAcquire(wait, lease > 0 ? lease : -1, TimeUnit.MILLISECONDS);
    if (id != null) PERMITS.put(key, id);
    return id != null;
  }

  /** lock.command kind name arguments; a lease of 0 is the watchdog's. */
  static Object lock(String client, RedissonClient redisson, String command, String[] w) throws Exception {
    if (w[4].startsWith("limit ")) return permit(client, redisson, command, w);
    RLock lock = cached(client, redisson, w[4], w[5]);
    switch (command) {
      case "lock":
        long lease = Long.parseLong(w[6]);
        if (lease > 0) lock.lock(lease, TimeUnit.MILLISECONDS);
        else lock.lock();
        return true;
      case "once":
        return lock.tryLock();
      case "try":
        long wait = Long.parseLong(w[6]);
        long term = Long.parseLong(w[7]);
        if (term > 0) return lock.tryLock(wait, term, TimeUnit.MILLISECONDS);
        return lock.tryLock(wait, TimeUnit.MILLISECONDS);
      case "token":
        return token(lock);
      case "unlock":
        lock.unlock();
        return true;
      case "force":
        return lock.forceUnlock();
      case "isLocked":
        return lock.isLocked();
      case "held":
        return lock.isHeldByCurrentThread();
      case "holds":
        return lock.getHoldCount();
      case "ttl":
        return lock.remainTimeToLive();
    }
    throw new IllegalArgumentException(command);
  }

  static long token(RLock lock) throws Exception {
    Method method = Class.forName("org.redisson.api.RFencedLock").getMethod("lockAndGetToken");
    return (Long) method.invoke(lock);
  }

  /** Counts up in two steps that only the lock makes one; with a fenced lock the tokens must rise. */
  static int hammer(String client, RedissonClient redisson, String kind, String name, String counter, int n)
      throws Exception {
    if (kind.equals("read/write")) return hammerBoth(client, redisson, name, counter, n);
    RLock lock = cached(client, redisson, kind, name);
    for (int i = 0; i < n; i++) {
      if (kind.equals("fenced")) {
        long token = token(lock);
        Object last = redisson.getBucket(counter + "-token").get();
        if (last != null && Long.parseLong((String) last) >= token)
          throw new IllegalStateException("token " + token + " after " + last);
        redisson.getBucket(counter + "-token").set(String.valueOf(token));
      } else if (kind.equals("multi")) {
        while (!lock.tryLock(20, TimeUnit.SECONDS)) {}
      } else {
        lock.lock();
      }
      try {
        add(redisson, counter);
      } finally {
        lock.unlock();
      }
    }
    return n;
  }

  static void add(RedissonClient redisson, String counter) {
    Object old = redisson.getBucket(counter).get();
    redisson.getBucket(counter).set(String.valueOf(old == null ? 1 : Integer.parseInt((String) old) + 1));
  }

  /** Every third round counts two counters up; the others see that they are alike. */
  static int hammerBoth(String client, RedissonClient redisson, String name, String counter, int n) throws Exception {
    RLock read = cached(client, redisson, "read", name);
    RLock write = cached(client, redisson, "write", name);
    String again = counter + "-again";
    for (int i = 0; i < n; i++) {
      RLock lock = i % 3 == 0 ? write : read;
      lock.lock();
      try {
        if (lock == write) {
          add(redisson, counter);
          add(redisson, again);
          continue;
        }
        Object a = redisson.getBucket(counter).get();
        Object b = redisson.getBucket(again).get();
        if (!Objects.equals(a, b)) throw new IllegalStateException("a reader sees " + a + " and " + b);
      } finally {
        lock.unlock();
      }
    }
    return n;
  }

  static Object other(RedissonClient redisson, String command, String[] w) throws Exception {
    String name = w[4];
    long n = w.length > 5 ? Long.parseLong(w[5]) : 0;
    RSemaphore semaphore = redisson.getSemaphore(name);
    RPermitExpirableSemaphore leases = redisson.getPermitExpirableSemaphore(name);
    switch (command) {
      case "permits.set":
        return semaphore.trySetPermits((int) n);
      case "permits.acquire":
        semaphore.acquire((int) n);
        return true;
      case "permits.try":
        return semaphore.tryAcquire((int) n);
      case "permits.release":
        semaphore.release((int) n);
        return true;
      case "permits.left":
        return semaphore.availablePermits();
      case "leases.set":
        return leases.trySetPermits((int) n);
      case "leases.acquire":
        return leases.acquire(n, TimeUnit.MILLISECONDS);
      case "leases.left":
        return leases.availablePermits();
      case "latch.set":
        return redisson.getCountDownLatch(name).trySetCount(n);
      case "latch.await":
        return redisson.getCountDownLatch(name).await(n, TimeUnit.MILLISECONDS);
      case "latch.down":
        redisson.getCountDownLatch(name).countDown();
        return true;
      case "latch.count":
        return redisson.getCountDownLatch(name).getCount();
    }
    throw new IllegalArgumentException(command);
  }
}
