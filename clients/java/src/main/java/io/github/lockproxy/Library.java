package io.github.lockproxy;

/** What a library of Redis' is asked for. */
interface Library {
  /** Makes a connection. */
  LockConnection open() throws Exception;

  /** Whether an error is Redis' own reply. */
  boolean isReply(Throwable error);

  /** Whether an error of the program's means that a command of its own may still be on its way to Redis. */
  boolean isBroken(Throwable error);
}
