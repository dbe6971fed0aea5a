package io.github.lockproxy;

import java.time.Duration;
import java.util.Objects;

/**
 * How a lock is taken: {@code new Options().wait(Duration.ofSeconds(10)).fair()}. Without an option the wait has no end
 * and the lease is 30 s.
 */
public final class Options {
  private static final Duration LONGEST = Duration.ofDays(36_500);

  Duration wait = LONGEST;
  Duration lease = Duration.ofSeconds(30);
  boolean watched;
  boolean fair;
  int limit; // 0: none

  /** Waits for somebody else's lock for so long; zero asks once. Without it the wait has no end. */
  public Options wait(Duration most) {
    if (most.isNegative()) throw new IllegalArgumentException("wait is zero (ask once) or more");
    wait = shorter(most);
    return this;
  }

  /**
   * Makes the lock free after so long, at least a second, if the program has died. It is renewed every third of that
   * until it is given back.
   */
  public Options lease(Duration lease) {
    if (lease.compareTo(Duration.ofSeconds(1)) < 0) {
      throw new IllegalArgumentException("a lease below a second cannot be renewed in time");
    }
    this.lease = shorter(lease);
    return this;
  }

  /**
   * Makes the lock the connection's, without a lease: the proxy renews it, it is free at once when the program dies,
   * and lost when the connection breaks.
   */
  public Options watched() {
    watched = true;
    return this;
  }

  /** First come, first served, Redisson's fair waiters included. */
  public Options fair() {
    fair = true;
    return this;
  }

  /** Lets so many hold the lock at once, one at least. It does not go with {@link #fair}. */
  public Options limit(int holders) {
    if (holders < 1) throw new IllegalArgumentException("a limit is one or more");
    limit = holders;
    return this;
  }

  private static Duration shorter(Duration d) {
    return Objects.requireNonNull(d).compareTo(LONGEST) < 0 ? d : LONGEST;
  }
}
