package io.github.lockproxy;

import java.lang.System.Logger.Level;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** One critical section. A thread of its own asks all its questions, over one connection; their words do not change. */
final class Section implements Runnable {
  private static final System.Logger LOG = System.getLogger("lockproxy");
  private static final long WATCHED_THIRD = TimeUnit.SECONDS.toNanos(5); // between questions about a watched lock
  private static final long WATCHED_LEASE = Long.MAX_VALUE / 2; // it has none
  private static final int UNLOCKS = 4; // no two sections have one owner, so UNLOCK may be said again
  private static final String HOST = host();

  final String name;
  final String owner;
  final boolean watched;
  final long lease;
  /** The hold, null when the wait is over, or the error of a question. Cancelled: the caller has gone. */
  final CompletableFuture<Held> granted = new CompletableFuture<>();

  private final Locks locks;
  private final long wait;
  private final long third; // no question takes longer: two thirds of the lease are left at the grant
  private final List<String> lock;
  private final List<String> renew;
  private final List<String> unlock;
  private final CountDownLatch over = new CountDownLatch(1);
  private CompletableFuture<Void> running;
  private LockConnection connection;
  private boolean fresh;
  private boolean unheard; // a LOCK has had no answer: Redis may have granted it, or may yet

  Section(Locks locks, String name, Options options) {
    this.locks = locks;
    this.name = name;
    if (options.fair && options.limit > 0) throw new IllegalArgumentException("a fair lock has no limit");
    watched = options.watched;
    wait = options.wait.toNanos();
    lease = watched ? WATCHED_LEASE : options.lease.toNanos();
    third = watched ? WATCHED_THIRD : lease / 3;
    owner = watched ? "" : HOST + ":" + ProcessHandle.current().pid() + ":" + UUID.randomUUID();
    List<String> mine = watched ? List.of() : List.of("OWNER", owner);
    List<String> end = watched ? List.of() : List.of("PX", "" + options.lease.toMillis());
    List<String> kind = options.limit > 0 ? List.of("LIMIT", "" + options.limit) : List.of("FENCE");
    lock = words(options.fair ? "FAIRLOCK" : "LOCK", watched ? List.of("SELF") : mine, end, kind);
    renew = words("RENEW", mine, end);
    unlock = words("UNLOCK", mine);
  }

  @SafeVarargs
  private List<String> words(String verb, List<String>... options) {
    var words = new ArrayList<>(List.of(verb, name));
    for (List<String> option : options) words.addAll(option);
    return Collections.unmodifiableList(words);
  }

  long clock() {
    return locks.clock.getAsLong();
  }

  void start() {
    running = CompletableFuture.runAsync(this, Locks.THREADS);
  }

  /** Ends the hold, and returns when that is done. */
  void end() {
    over.countDown();
    running.join(); // an interrupt does not cut it short, and is kept
  }

  @Override
  public void run() {
    Held held = null;
    try {
      held = acquire();
      if (granted.complete(held) && held != null) keep(held);
      if (held != null) giveUp(held);
    } catch (Throwable e) {
      if (granted.completeExceptionally(e) || held == null) {
        takeBack();
        return;
      }
      drop();
      held.gone(e);
    } finally {
      if (connection != null) locks.leave(connection);
    }
  }

  /** Asks for the lock until it is granted, or the wait is over: null. */
  private Held acquire() throws Exception {
    long began = clock();
    long answered = began;
    for (boolean trouble = false; ; ) {
      try {
        connect();
        long sent = clock();
        long left = wait - (sent - began);
        long block = Math.min(left, third * 3 / 4);
        unheard = true;
        Long token = ask(block > 0 ? words(lock, block) : lock);
        unheard = false;
        if (token != null) return new Held(this, token, sent);
        if (block >= left || granted.isCancelled()) return null;
        trouble = false;
        answered = clock();
      } catch (Exception e) {
        // An idle connection may have been closed on the way, or the proxy is away: a second LOCK joins the first.
        if (locks.library.isReply(e)) unheard = Locks.text(e).contains("the reply to this LOCK was lost");
        boolean late = clock() - answered >= third || clock() - began >= wait;
        if (locks.library.isReply(e) || granted.isCancelled() || trouble && late) throw e;
        trouble = true;
        TimeUnit.NANOSECONDS.sleep(third / 100);
      }
    }
  }

  private static List<String> words(List<String> lock, long block) {
    var words = new ArrayList<>(lock);
    words.add("BLOCK");
    words.add("" + (block + 999_999) / 1_000_000);
    return words;
  }

  /** Renews the lease until the hold is ended. */
  private void keep(Held held) throws InterruptedException {
    long pause = third;
    while (!held.lost() && !over.await(pause, TimeUnit.NANOSECONDS)) {
      pause = third / 4;
      try {
        connect();
        long sent = clock();
        ask(renew);
        held.answered(sent);
        pause = third;
      } catch (Exception e) {
        held.troubled(e);
        if (isGone(e)) held.gone(e);
      }
    }
    over.await();
  }

  /** Whether an error to a question means that the lock is not held. Of a lease only Redis can say so. */
  private boolean isGone(Exception e) {
    if (!locks.library.isReply(e)) return watched;
    String text = Locks.text(e);
    return text.startsWith("NOTHELD") || text.startsWith("LOCKLOST");
  }

  private void giveUp(Held held) throws InterruptedException {
    if (!held.isLeft()) release(held);
    else if (watched) drop();
  }

  /** Gives the lock back. If that cannot be done it ends with its lease. */
  private void release(Held held) throws InterruptedException {
    if (watched && held.lost()) return;
    boolean done = false; // an UNLOCK that has had no answer may have been done
    for (int i = 1; ; i++) {
      try {
        connect();
        ask(unlock);
        return;
      } catch (Exception e) {
        if (isGone(e)) {
          if (!done) held.gone(e);
          return;
        }
        if (watched || i == UNLOCKS || held.isLate()) {
          LOG.log(Level.WARNING, name + " was not given back and ends with its lease", e);
          if (watched) drop(); // which frees it, and leaves no hold to the next section
          return;
        }
        done |= !locks.library.isReply(e);
      }
      TimeUnit.NANOSECONDS.sleep(third / 20);
    }
  }

  /**
   * Gives back what a LOCK without an answer may have taken. It may also be carried out after the first UNLOCK, which
   * comes over another connection; a watched lock has ended with its own.
   */
  private void takeBack() {
    try {
      for (int i = 1; unheard && !watched; i++) {
        try {
          connect();
          ask(unlock);
          return;
        } catch (Exception e) {
          if (i == UNLOCKS) return; // it ends with its lease, if it was granted
        }
        TimeUnit.NANOSECONDS.sleep(third / 800 << 2 * i);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private void connect() throws Exception {
    if (connection == null) connection = locks.connection(fresh, Duration.ofNanos(third));
  }

  /** Redis' answer. After an error that is none the connection is closed, and the next question has a new one. */
  private Long ask(List<String> words) throws Exception {
    try {
      return connection.ask(words, Duration.ofNanos(third));
    } catch (Exception e) {
      if (!locks.library.isReply(e)) drop();
      throw e;
    }
  }

  private void drop() {
    fresh = true;
    if (connection != null) connection.close();
    connection = null;
  }

  private static String host() {
    try {
      return InetAddress.getLocalHost().getHostName();
    } catch (UnknownHostException e) {
      return System.getenv().getOrDefault("HOSTNAME", "localhost"); // its name has no address
    }
  }
}
