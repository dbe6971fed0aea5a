package io.github.lockproxy;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;

/** A lock in its holder's hands. Any thread may ask it; {@link #close} gives the lock back. */
public final class Held implements AutoCloseable {
  private final Section section;
  private final long token;
  private final CompletableFuture<Lost> loss = new CompletableFuture<>();
  private long until;
  private boolean over;
  private boolean left;
  private String why;
  private Throwable cause;

  Held(Section section, long token, long sent) {
    this.section = section;
    this.token = token;
    until = sent + section.lease;
    askAgain();
  }

  /** The fencing token, which rises with each holder; 0 of a lock with a limit, which has none. */
  public long token() {
    return token;
  }

  /** host:process:uuid, as LOCKINFO shows it; empty of a watched lock, whose owner the proxy names. */
  public String owner() {
    return section.owner;
  }

  /** Whether somebody else may have the lock. Once it is true it stays so. Ask before each step that needs the lock. */
  public synchronized boolean lost() {
    if (why == null && !over && isLate()) lose("no renewal was confirmed in time", cause);
    return why != null;
  }

  /** Throws {@link Lost} if the lock was lost. */
  public synchronized void check() {
    if (lost()) throw loss();
  }

  /** Completes when the lock is lost before {@link #close}: {@code held.whenLost().thenRun(job::cancel)}. */
  public CompletionStage<Lost> whenLost() {
    return loss.minimalCompletionStage();
  }

  /**
   * Leaves the lock to its lease: {@link #close} will only end its renewals. This is for a write that has had no
   * answer, and may still be on its way. A watched lock has no lease: it is free when close has ended its connection.
   */
  public synchronized void leave() {
    left = true;
  }

  /**
   * Gives the lock back, once. While Redis is away it asks again, until the lease is over; then the lock ends by
   * itself.
   *
   * @throws Lost if the lock was lost while it was held
   */
  @Override
  public void close() {
    synchronized (this) {
      if (over) return;
      lost();
      over = true;
    }
    section.end();
    synchronized (this) {
      if (why != null) throw loss();
    }
  }

  synchronized boolean isLeft() {
    return left;
  }

  /** Whether the lease is over, as far as Redis has confirmed it. */
  synchronized boolean isLate() {
    return section.clock() - until >= 0;
  }

  /**
   * Redis has confirmed the lease, which counts from before the question was sent: it is never later than Redis has it.
   */
  synchronized void answered(long sent) {
    if (lost()) return;
    until = sent + section.lease;
    cause = null;
    askAgain();
  }

  /** A renewal has failed, which ends nothing yet. */
  synchronized void troubled(Throwable error) {
    if (why == null) cause = error;
  }

  /** Redis or the connection has said that the lock is not held any more. */
  synchronized void gone(Throwable error) {
    if (why == null) lose(Locks.text(error), error);
  }

  private void lose(String text, Throwable error) {
    why = text;
    cause = error;
    Lost lost = loss();
    if (!over) Locks.THREADS.execute(() -> loss.complete(lost));
  }

  private Lost loss() {
    return new Lost(section.name + ": " + why, cause);
  }

  /** whenLost has to complete when the lease is over, also if nobody asks. */
  private void askAgain() {
    if (section.watched) return;
    long left = Math.max(0, until - section.clock()) + TimeUnit.MILLISECONDS.toNanos(1);
    CompletableFuture.delayedExecutor(left, TimeUnit.NANOSECONDS, Locks.THREADS).execute(this::lost);
  }
}
