package io.github.lockproxy;

/**
 * The lock was lost while it was held: somebody else may have it. The cause is the error that said so, if there is one.
 */
public final class Lost extends LockException {
  private static final long serialVersionUID = 1;

  Lost(String message, Throwable cause) {
    super(message, cause);
  }
}
