package io.github.lockproxy;

/** A lock could not be asked for: Redis refused, or could not be reached. The cause is the library's own exception. */
public class LockException extends RuntimeException {
  private static final long serialVersionUID = 1;

  LockException(String message, Throwable cause) {
    super(message, cause);
  }
}
