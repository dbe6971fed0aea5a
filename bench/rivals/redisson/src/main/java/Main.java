import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** The contestant of Redisson, with its own settings: a thread for each client. The protocol is that of bench/contest. */
public class Main {
  static final LongAdder PAIRS = new LongAdder();
  static final LongAdder CHANGES = new LongAdder();
  static final AtomicReference<Times> LAST = new AtomicReference<>();
  static final AtomicInteger HOLDERS = new AtomicInteger();
  static final AtomicBoolean SAMPLING = new AtomicBoolean();

  /** How long the pairs of one thread took that ended while sampling, in ns. */
  static class Times {
    private long[] all = new long[1024];
    private int n;
    int pairs;
    long longest;
    long since; // the last pair ended; 0: none did

    /** Notes a pair; waited says that it had to wait for others, or is of a lock that nobody else wants. */
    synchronized void add(long took, boolean waited) {
      pairs++;
      longest = Math.max(longest, took);
      since = System.nanoTime();
      if (!waited) return;
      if (n == all.length) all = Arrays.copyOf(all, 2 * n);
      all[n++] = took;
    }

    /** How long its thread waited at most, or has waited until now, if it began at a time. */
    synchronized long longest(long began) {
      return Math.max(longest, System.nanoTime() - (since == 0 ? began : since));
    }

    synchronized long[] get() {
      return Arrays.copyOf(all, n);
    }
  }

  public static void main(String[] args) throws Exception {
    Map<String, String> flags = new HashMap<>();
    for (int i = 0; i < args.length; i++) {
      if (args[i].equals("-shared")) flags.put("-shared", "");
      else flags.put(args[i], args[++i]);
    }
    int clients = Integer.parseInt(flags.get("-clients"));
    boolean shared = flags.containsKey("-shared");
    Config config = new Config();
    config.useSingleServer().setAddress("redis://" + flags.get("-addr"));
    RedissonClient redisson = Redisson.create(config);

    Times[] took = new Times[clients];
    for (int i = 0; i < clients; i++) {
      Times times = took[i] = new Times();
      String name = "bench:lock:" + ProcessHandle.current().pid() + ":" + (shared ? 0 : i);
      RLock lock = flags.get("-lock").equals("fair") ? redisson.getFairLock(name) : redisson.getLock(name);
      Thread thread = new Thread(() -> loop(lock, shared, times));
      thread.setDaemon(true);
      thread.start();
    }
    pause(flags.get("-warm"));
    System.out.println("begin");
    long pairs = PAIRS.sum();
    long changes = CHANGES.sum();
    long began = System.nanoTime();
    SAMPLING.set(true);
    pause(flags.get("-seconds"));
    SAMPLING.set(false);
    pairs = PAIRS.sum() - pairs;
    changes = CHANGES.sum() - changes;
    double seconds = (System.nanoTime() - began) / 1e9;
    long[] all = Arrays.stream(took).flatMapToLong(times -> Arrays.stream(times.get())).sorted().toArray();
    System.out.printf(
        "{\"version\": \"%s\", \"pairs\": %d, \"changes\": %d, \"seconds\": %f, \"p50_us\": %f, \"p99_us\": %f, "
            + "\"longest_us\": %f, \"least\": %d, \"most\": %d}%n",
        Redisson.class.getPackage().getImplementationVersion(), pairs, changes, seconds, at(all, 0.5), at(all, 0.99),
        Arrays.stream(took).mapToLong(times -> times.longest(began)).max().getAsLong() / 1e3,
        Arrays.stream(took).mapToInt(times -> times.pairs).min().getAsInt(),
        Arrays.stream(took).mapToInt(times -> times.pairs).max().getAsInt());
    while (System.in.read() >= 0) {}
    Runtime.getRuntime().halt(0);
  }

  static void pause(String seconds) throws InterruptedException {
    Thread.sleep((long) (Double.parseDouble(seconds) * 1000));
  }

  static double at(long[] all, double part) {
    return all.length == 0 ? 0 : all[(int) (part * (all.length - 1))] / 1e3;
  }

  static void loop(RLock lock, boolean shared, Times times) {
    try {
      while (true) {
        long began = System.nanoTime();
        lock.lock();
        int holders = HOLDERS.incrementAndGet();
        if (shared && holders != 1) throw new IllegalStateException(holders + " clients hold the one lock");
        boolean changed = shared && LAST.getAndSet(times) != times;
        HOLDERS.decrementAndGet();
        lock.unlock();
        PAIRS.increment();
        if (changed) CHANGES.increment();
        if (SAMPLING.get()) times.add(System.nanoTime() - began, changed || !shared);
      }
    } catch (Throwable e) {
      System.err.println(e);
      Runtime.getRuntime().halt(1);
    }
  }
}
