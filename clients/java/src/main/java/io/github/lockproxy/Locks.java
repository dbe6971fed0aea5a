package io.github.lockproxy;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingDeque;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.LongSupplier;

/**
 * The locks that a program reaches by one client of Jedis ({@link JedisLocks}) or Lettuce ({@link LettuceLocks}). They
 * are Redisson's locks. Make one for each client, beside it. Any thread may use it.
 *
 * <pre>{@code
 * try (var held = locks.lock("orders", new Options().wait(Duration.ofSeconds(10)))) {
 *   held.check();             // throws Lost if somebody else may have it
 *   save(order, held.token()); // the fencing token rises with each holder
 * }
 * }</pre>
 */
public final class Locks implements AutoCloseable {
  /** One thread for each critical section, which asks all its questions. */
  static final ExecutorService THREADS =
      Executors.newCachedThreadPool(
          work -> {
            var thread = new Thread(work, "lockproxy");
            thread.setDaemon(true);
            return thread;
          });

  private static final int KEPT = 64;

  final Library library;
  final LongSupplier clock;
  private final LinkedBlockingDeque<LockConnection> idle = new LinkedBlockingDeque<>(KEPT);
  private volatile boolean closed;

  Locks(Library library) {
    this(library, System::nanoTime);
  }

  Locks(Library library, LongSupplier clock) {
    this.library = library;
    this.clock = clock;
  }

  /** What {@link #with} does while it holds a lock. */
  @FunctionalInterface
  public interface Work<T, E extends Exception> {
    T run(Held held) throws E;
  }

  /** Takes the lock, with an endless wait and a lease of 30 s. See {@link #lock(String, Options)}. */
  public Held lock(String name) throws InterruptedException {
    return lock(name, new Options());
  }

  /**
   * Takes the lock, for a try statement that gives it back; without one, {@link Held#close} may be called from any
   * thread. The end of the block throws {@link Lost} if the lock was lost meanwhile; beside an exception of the block's
   * own that is a suppressed one.
   *
   * @throws NotAcquired if somebody else had the lock for as long as the options say
   * @throws LockException if Redis refuses, or cannot be reached
   * @throws InterruptedException if the thread is interrupted while it waits; what is granted after that is given back
   */
  public Held lock(String name, Options options) throws InterruptedException {
    if (Thread.interrupted()) throw new InterruptedException();
    var section = new Section(this, name, options);
    section.start();
    try {
      Held held = section.granted.get();
      if (held == null) throw new NotAcquired(name + ": somebody else has it, for " + options.wait.toMillis() + " ms");
      return held;
    } catch (InterruptedException e) {
      if (!section.granted.cancel(false)) section.granted.thenAcceptAsync(Locks::giveBack, THREADS);
      throw e;
    } catch (ExecutionException e) {
      String text = text(e.getCause());
      String which = text.startsWith("ERR unknown command") ? ": this is no lockproxy: " : ": ";
      throw new LockException(name + which + text, e.getCause());
    }
  }

  static String text(Throwable error) {
    return error.getMessage() == null ? error.toString() : error.getMessage();
  }

  private static void giveBack(Held held) {
    if (held != null) held.close();
  }

  /**
   * Holds the lock while work runs, and returns what that returns. If work ends with the library's error for a broken
   * connection, a write of it may still be on its way: then the lock is not given back, and ends with its lease. A try
   * statement cannot know that; see {@link Held#leave}.
   */
  public <T, E extends Exception> T with(String name, Options options, Work<T, E> work) throws E, InterruptedException {
    try (var held = lock(name, options)) {
      try {
        return work.run(held);
      } catch (Throwable error) {
        if (isBroken(error)) held.leave();
        throw error;
      }
    }
  }

  private boolean isBroken(Throwable error) {
    for (Throwable e = error; e != null; e = e.getCause()) {
      if (library.isBroken(e)) return true;
    }
    return false;
  }

  /** Closes the connections that no section uses; those of others are closed when their sections end. */
  @Override
  public void close() {
    closed = true;
    for (LockConnection c; (c = idle.pollFirst()) != null; ) c.close();
  }

  /** A connection for a section: one that another has left, or a new one. */
  LockConnection connection(boolean fresh, Duration most) throws Exception {
    for (LockConnection c; !fresh && (c = idle.pollFirst()) != null; ) {
      if (c.isOpen()) return c;
      c.close();
    }
    var opening = new CompletableFuture<LockConnection>();
    THREADS.execute(() -> open(opening));
    try {
      return opening.get(most.toNanos(), TimeUnit.NANOSECONDS);
    } catch (TimeoutException e) {
      opening.thenAccept(LockConnection::close);
      throw new TimeoutException("no connection within " + most.toMillis() + " ms");
    } catch (ExecutionException e) {
      if (e.getCause() instanceof Exception cause) throw cause;
      throw e;
    }
  }

  private void open(CompletableFuture<LockConnection> opening) {
    try {
      opening.complete(library.open());
    } catch (Throwable e) {
      opening.completeExceptionally(e);
    }
  }

  /** Keeps a connection for another section. */
  void leave(LockConnection c) {
    if (!closed && idle.offerFirst(c)) {
      if (closed) close();
      return;
    }
    c.close();
  }
}
