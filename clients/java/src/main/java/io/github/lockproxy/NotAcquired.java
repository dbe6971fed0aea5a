package io.github.lockproxy;

/** Somebody else had the lock for as long as the caller was willing to wait. */
public final class NotAcquired extends LockException {
  private static final long serialVersionUID = 1;

  NotAcquired(String message) {
    super(message, null);
  }
}
