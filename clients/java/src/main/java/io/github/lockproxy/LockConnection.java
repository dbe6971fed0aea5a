package io.github.lockproxy;

import java.time.Duration;
import java.util.List;

/** One connection, which nobody else uses. */
interface LockConnection {
  /**
   * Asks one command, and returns the number that Redis answers, 0 for its OK, or null. An error for which
   * {@link Library#isReply} is false leaves the outcome unknown, and the connection of no use.
   */
  Long ask(List<String> words, Duration most) throws Exception;

  /** Whether the library knows of nothing that has ended the connection. */
  boolean isOpen();

  /** Ends the connection, and fails silently. */
  void close();
}
