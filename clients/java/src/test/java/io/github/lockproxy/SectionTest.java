package io.github.lockproxy;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What is asked, and what becomes of answers and errors, by a clock of the test's own and without a server. */
@Timeout(60)
class SectionTest {
  /** An error of Redis' own. */
  private static final class Reply extends Exception {
    private static final long serialVersionUID = 1;

    Reply(String text) {
      super(text);
    }
  }

  private interface Answers {
    Long to(String verb) throws Exception;
  }

  private final AtomicLong clock = new AtomicLong();
  private final List<String> asked = new CopyOnWriteArrayList<>();
  private final AtomicInteger opened = new AtomicInteger();

  /** Locks that get these answers. */
  private Locks locks(Answers answers) {
    return new Locks(
        new Library() {
          @Override
          public LockConnection open() {
            opened.incrementAndGet();
            return new LockConnection() {
              @Override
              public Long ask(List<String> words, Duration most) throws Exception {
                asked.add(String.join(" ", words));
                return answers.to(words.get(0));
              }

              @Override
              public boolean isOpen() {
                return true;
              }

              @Override
              public void close() {}
            };
          }

          @Override
          public boolean isReply(Throwable error) {
            return error instanceof Reply;
          }

          @Override
          public boolean isBroken(Throwable error) {
            return false;
          }
        },
        clock::get);
  }

  private void passes(double seconds) {
    clock.addAndGet((long) (seconds * 1e9));
  }

  private static Options within(int seconds) {
    return new Options().wait(Duration.ofSeconds(seconds));
  }

  @Test
  void theWords() throws Exception {
    Locks locks =
        locks(
            verb -> {
              if (verb.equals("UNLOCK")) return 1L;
              passes(8);
              return asked.size() == 2 ? 42L : null;
            });
    String owner;
    try (var held = locks.lock("k", within(10))) {
      owner = held.owner();
      assertEquals(42, held.token());
    }
    String lock = "LOCK k OWNER " + owner + " PX 30000 FENCE";
    assertEquals(List.of(lock + " BLOCK 7500", lock + " BLOCK 2000", "UNLOCK k OWNER " + owner), asked);
    asked.clear();
    assertThrows(NotAcquired.class, () -> locks.lock("k", within(0).watched().fair()));
    assertEquals(List.of("FAIRLOCK k SELF FENCE"), asked);
    asked.clear();
    assertThrows(NotAcquired.class, () -> locks.lock("k", within(0).watched().limit(5)));
    assertEquals(List.of("LOCK k SELF LIMIT 5"), asked);
    asked.clear();
    try (var held = locks.lock("k", new Options().watched())) {
      assertEquals("", held.owner());
    }
    String watched = "LOCK k SELF FENCE BLOCK 3750";
    assertEquals(List.of(watched, watched, "UNLOCK k"), asked);
    assertEquals(1, opened.get(), "connections");
  }

  @Test
  void theLeaseCountsFromBeforeTheAnsweredQuestion() throws Exception {
    Locks locks =
        locks(
            verb -> {
              if (asked.size() > 1) {
                passes(2);
                return 42L;
              }
              passes(700); // a wait that is long beside the lease
              return null;
            });
    var held = locks.lock("k");
    passes(27.9);
    assertFalse(held.lost());
    passes(0.2);
    assertTrue(held.lost());
    held.answered(clock.get());
    assertTrue(held.lost(), "a lost lock came back");
    assertTrue(held.whenLost().toCompletableFuture().get(20, TimeUnit.SECONDS).getMessage().contains("in time"));
    assertThrows(Lost.class, held::close);
  }

  /**
   * The first is asked again in any case; after that it goes on for a third of the lease, and no longer than the wait.
   */
  @ParameterizedTest
  @CsvSource({"60, 21", "2, 5", "0, 2"})
  void questionsWithoutAnAnswer(int wait, int times) {
    Locks locks =
        locks(
            verb -> {
              passes(0.5);
              throw new IOException("closed");
            });
    var error = assertThrows(LockException.class, () -> locks.lock("k", within(wait)));
    assertInstanceOf(IOException.class, error.getCause());
    assertTrue(Math.abs(asked.size() - times) <= 1, () -> "asked " + asked.size() + " times");
    assertEquals(asked.size(), opened.get(), "connections");
  }

  /** A LOCK without an answer may have been granted, and may be carried out after the first UNLOCK. */
  @ParameterizedTest
  @CsvSource({
    ", false, 4", ", true, 0", "ERR the reply to this LOCK was lost and Redis cannot be asked, false, 4", "WRONGTYPE, false, 0",
  })
  void whatMayHaveBeenGrantedIsGivenBack(String reply, boolean watched, int unlocks) throws Exception {
    Locks locks =
        locks(
            verb -> {
              passes(0.5);
              if (verb.equals("UNLOCK")) throw new Reply("NOTHELD this owner");
              throw reply == null ? new IOException("closed") : new Reply(reply);
            });
    var options = within(0).lease(Duration.ofSeconds(1));
    assertThrows(LockException.class, () -> locks.lock("k", watched ? options.watched() : options));
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
    while (unlocks() < unlocks && System.nanoTime() < end) Thread.sleep(10);
    Thread.sleep(200);
    assertEquals(unlocks, unlocks());
  }

  private long unlocks() {
    return asked.stream().filter(words -> words.startsWith("UNLOCK")).count();
  }

  @Test
  void noLockproxy() {
    Locks locks =
        locks(
            verb -> {
              throw new Reply("ERR unknown command 'LOCK', with args beginning with: 'k'");
            });
    var error = assertThrows(LockException.class, () -> locks.lock("k"));
    assertTrue(error.getMessage().startsWith("k: this is no lockproxy: ERR unknown command"), error::getMessage);
  }

  @ParameterizedTest
  @CsvSource({
    "NOTHELD this owner, false, true",
    "LOCKLOST 'k', true, true",
    "ERR upstream unavailable, false, false",
    "ERR upstream unavailable, true, false",
    ", false, false",
    ", true, true",
  })
  void errorsToARenewal(String reply, boolean watched, boolean lost) throws Exception {
    Locks locks =
        locks(
            verb -> {
              if (!verb.equals("RENEW")) return 1L;
              throw reply == null ? new IOException("closed") : new Reply(reply);
            });
    var held = locks.lock("k", watched ? new Options().watched() : new Options().lease(Duration.ofSeconds(1)));
    while (!held.lost() && asked.size() < 3) Thread.sleep(10);
    assertEquals(lost, held.lost());
    if (lost) {
      assertEquals(reply == null ? "closed" : reply, assertThrows(Lost.class, held::close).getCause().getMessage());
    } else {
      assertDoesNotThrow(held::close);
    }
  }

  /** NOTHELD to an UNLOCK that is asked again says that the first was done, and nothing of a loss. */
  @Test
  void unlockAgainAfterALostReply() throws Exception {
    var lost = new AtomicInteger();
    Locks locks =
        locks(
            verb -> {
              if (!verb.equals("UNLOCK")) return 1L;
              if (lost.incrementAndGet() == 1) throw new IOException("closed");
              throw new Reply("NOTHELD this owner");
            });
    assertDoesNotThrow(locks.lock("k")::close);
    assertEquals(2, lost.get());
    assertThrows(Lost.class, locks.lock("k")::close);
  }

  @Test
  void unlockIsNeverAnswered() throws Exception {
    Locks locks =
        locks(
            verb -> {
              if (verb.equals("LOCK")) return 1L;
              throw new IOException("closed");
            });
    var held = locks.lock("k", new Options().lease(Duration.ofSeconds(1)));
    assertDoesNotThrow(held::close);
    assertEquals(4, unlocks());
  }

  /** A thread that cannot renew a hold says so, and leaves its connection to nobody. */
  @Test
  void anErrorOfTheVirtualMachine() throws Exception {
    Locks locks =
        locks(
            verb -> {
              if (verb.equals("LOCK")) return 1L;
              throw new NoClassDefFoundError("gone");
            });
    var held = locks.lock("k", new Options().lease(Duration.ofSeconds(1)));
    held.whenLost().toCompletableFuture().get(20, TimeUnit.SECONDS);
    assertThrows(Lost.class, held::close);
    locks.lock("k");
    assertEquals(2, opened.get(), "connections");
  }

  /** No hold of a connection's is left to the next section. */
  @Test
  void unlockOfAWatchedLockIsRefused() throws Exception {
    Locks locks =
        locks(
            verb -> {
              if (!verb.equals("UNLOCK")) return 1L;
              throw new Reply("MISCONF cannot write");
            });
    for (int i = 1; i <= 2; i++) {
      assertDoesNotThrow(locks.lock("k", new Options().watched())::close);
      assertEquals(i, opened.get(), "connections");
    }
  }

  @Test
  void optionsThatCannotBe() {
    assertThrows(IllegalArgumentException.class, () -> new Options().lease(Duration.ofMillis(999)));
    assertThrows(IllegalArgumentException.class, () -> within(-1));
    assertThrows(IllegalArgumentException.class, () -> new Options().limit(0));
    assertThrows(IllegalArgumentException.class, () -> locks(verb -> 1L).lock("k", new Options().limit(5).fair()));
    assertDoesNotThrow(() -> new Options().wait(Duration.ofSeconds(Long.MAX_VALUE)).wait.toNanos());
  }
}
