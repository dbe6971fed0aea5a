package io.github.lockproxy;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Collections;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What a program may rely on, before real servers, whatever its library. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
@Timeout(120)
abstract class LocksCase {
  /** A program's client, whose pool, if it has one, is smaller than the waiters. */
  interface Client extends AutoCloseable {
    Locks locks();

    /** Asks a command over the program's own connections. */
    Object ask(String... words);

    @Override
    void close();
  }

  private Servers servers;
  private Client client;
  private Locks locks;

  abstract Client connect(int port);

  /** Locks over connections that are made one by one. */
  abstract Locks oneByOne(int port);

  /** What the library throws when a connection breaks. */
  abstract RuntimeException broken();

  @BeforeAll
  void startServers() throws Exception {
    servers = new Servers();
  }

  @AfterAll
  void stopServers() throws Exception {
    servers.close();
  }

  @BeforeEach
  void begin() {
    client = connect(servers.proxy.port);
    locks = client.locks();
  }

  @AfterEach
  void end() {
    locks.close();
    client.close();
  }

  private static Options options(boolean watched) {
    var options = leased(4);
    return watched ? options.watched() : options;
  }

  private static Options leased(int seconds) {
    return new Options().lease(Duration.ofSeconds(seconds));
  }

  private static Options once() {
    return new Options().wait(Duration.ZERO);
  }

  private static Options within(int seconds) {
    return new Options().wait(Duration.ofSeconds(seconds));
  }

  private static void until(Callable<Boolean> what) throws Exception {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
    while (!what.call()) {
      assertTrue(System.nanoTime() < end, "in vain");
      Thread.sleep(20);
    }
  }

  /** Whether the hold lasts for so long. */
  private static void lasts(Held held, int seconds) throws Exception {
    for (int i = 0; i < seconds * 20; i++) {
      held.check();
      Thread.sleep(50);
    }
  }

  private void isFree(String name) throws Exception {
    locks.lock(name, within(20)).close();
  }

  /** Each of 60 threads adds one to a counter in two steps, over the connections that the locks must not use up. */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void moreThreadsThanConnections(boolean watched) throws Exception {
    client.ask("SET", "n", "0");
    var options = watched ? within(60).watched() : within(60);
    Callable<Void> work =
        () -> {
          try (var held = locks.lock("pool", options)) {
            int n = Integer.parseInt((String) client.ask("GET", "n"));
            Thread.sleep(5);
            client.ask("SET", "n", "" + (n + 1));
            held.check();
          }
          return null;
        };
    var threads = Executors.newFixedThreadPool(60);
    int failed = 0;
    for (Future<Void> done : threads.invokeAll(Collections.nCopies(60, work))) {
      try {
        done.get();
      } catch (java.util.concurrent.ExecutionException e) {
        if (failed++ == 0) e.printStackTrace();
      }
    }
    threads.shutdown();
    assertEquals(0, failed, "have failed");
    assertEquals("60", client.ask("GET", "n"));
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void waits(boolean watched) throws Exception {
    try (var held = locks.lock("busy", options(watched))) {
      assertTrue(held.owner().matches(watched ? "" : ".+:" + ProcessHandle.current().pid() + ":[0-9a-f-]{36}"));
      assertTrue(client.ask("LOCKINFO", "busy").toString().contains(held.owner()));
      for (int ms : new int[] {0, 300}) {
        long began = System.nanoTime();
        var options = options(watched).wait(Duration.ofMillis(ms));
        assertThrows(NotAcquired.class, () -> locks.lock("busy", options));
        assertTrue(System.nanoTime() - began >= TimeUnit.MILLISECONDS.toNanos(ms));
      }
    }
    isFree("busy");
  }

  @Test
  void waitsForLongerThanTheLease() throws Exception {
    var entered = new CountDownLatch(1);
    var holder =
        new Thread(
            () -> {
              try (var held = locks.lock("long")) {
                entered.countDown();
                Thread.sleep(6000);
              } catch (InterruptedException e) {
                throw new IllegalStateException(e);
              }
            });
    holder.start();
    entered.await();
    try (var held = locks.lock("long", leased(4))) {
      lasts(held, 5);
    }
    holder.join();
  }

  /** A thread that is interrupted waits for no reply, and what is granted to it later is given back. */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void isInterrupted(boolean watched) throws Exception {
    var ended = new CountDownLatch(1);
    var waiter =
        new Thread(
            () -> {
              try (var held = locks.lock("interrupted", watched ? new Options().watched() : new Options())) {
                held.check();
              } catch (InterruptedException e) {
                ended.countDown();
              }
            });
    try (var held = locks.lock("interrupted")) {
      waiter.start();
      Thread.sleep(300);
      waiter.interrupt();
      assertTrue(ended.await(10, TimeUnit.SECONDS));
    }
    waiter.join();
    locks.lock("interrupted", within(20)).close();
    Thread.currentThread().interrupt();
    assertThrows(InterruptedException.class, () -> locks.lock("interrupted"));
  }

  /** An interrupt in the block ends the block; the lock is given back, and the thread knows of it. */
  @Test
  void isInterruptedInTheBlock() throws Exception {
    try (var held = locks.lock("interrupted inside", once())) {
      Thread.currentThread().interrupt();
    }
    assertTrue(Thread.interrupted());
    locks.lock("interrupted inside", once()).close();
  }

  /** Three of four have a place. The fourth gets that of one that gives it back, or whose connection is closed. */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void limit(boolean watched) throws Exception {
    var held = new ArrayDeque<Held>();
    for (int i = 0; i < 3; i++) held.add(locks.lock("limit", options(watched).wait(Duration.ZERO).limit(3)));
    assertEquals(0, held.peek().token());
    assertThrows(NotAcquired.class, () -> locks.lock("limit", options(watched).wait(Duration.ZERO).limit(3)));
    var fourth = CompletableFuture.supplyAsync(() -> lockUnchecked("limit", within(60).limit(3)), Locks.THREADS);
    until(() -> client.ask("LOCKLIST", "MATCH", "limit").toString().contains("waiting"));
    held.remove().close();
    held.add(fourth.get(20, TimeUnit.SECONDS));
    var ended = held.remove();
    if (watched) ended.leave(); // its connection is closed, without UNLOCK
    ended.close();
    held.add(locks.lock("limit", within(20).limit(3)));
    held.forEach(Held::close);
    assertEquals("0", client.ask("EXISTS", "limit").toString());
  }

  private Held lockUnchecked(String name, Options options) {
    try {
      return locks.lock(name, options);
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  @Test
  void connectionsThatAreMadeOneByOne() throws Exception {
    try (var others = oneByOne(servers.proxy.port)) {
      try (var held = others.lock("one by one")) {
        assertThrows(NotAcquired.class, () -> locks.lock("one by one", once()));
        held.check();
      }
      try (var held = locks.lock("one by one", once())) {
        assertThrows(NotAcquired.class, () -> others.lock("one by one", once().watched()));
        held.check();
      }
    }
  }

  @Test
  void tokensRise() throws Exception {
    long last = 0;
    for (boolean watched : new boolean[] {false, true, false}) {
      try (var held = locks.lock("fenced", options(watched))) {
        assertTrue(held.token() > last);
        last = held.token();
      }
    }
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void isFreedByForce(boolean watched) throws Exception {
    var lost =
        assertThrows(
            Lost.class,
            () -> {
              try (var held = locks.lock("forced", options(watched))) {
                client.ask("UNLOCK", "forced", "FORCE");
                var told = held.whenLost().toCompletableFuture().get(20, TimeUnit.SECONDS);
                assertTrue(held.lost());
                assertSame(told.getCause(), assertThrows(Lost.class, held::check).getCause());
              }
            });
    assertTrue(lost.getCause().getMessage().matches("(NOTHELD|LOCKLOST) .*"), lost::getMessage);
    isFree("forced");
  }

  /** The end of the block tells of a loss that nobody has asked for. */
  @Test
  void unlockFindsNothing() throws Exception {
    var held = locks.lock("unasked");
    client.ask("UNLOCK", "unasked", "FORCE");
    assertFalse(held.lost());
    assertThrows(Lost.class, held::close);
    assertTrue(held.lost());
    assertFalse(held.whenLost().toCompletableFuture().isDone(), "the block is over");
    assertDoesNotThrow(held::close);
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void theProgramsOwnError(boolean watched) throws Exception {
    var mine = new IllegalStateException("mine");
    var thrown =
        assertThrows(
            IllegalStateException.class,
            () -> {
              try (var held = locks.lock("error", options(watched))) {
                throw mine;
              }
            });
    assertSame(mine, thrown);
    assertEquals(0, mine.getSuppressed().length);
    locks.lock("error", once()).close();
    Locks.Work<Void, IllegalStateException> work =
        held -> {
          client.ask("UNLOCK", "error", "FORCE");
          throw mine;
        };
    assertSame(mine, assertThrows(IllegalStateException.class, () -> locks.with("error", options(watched), work)));
    assertInstanceOf(Lost.class, mine.getSuppressed()[0]);
    isFree("error");
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void isRenewed(boolean watched) throws Exception {
    String done =
        locks.with(
            "job",
            options(watched),
            held -> {
              lasts(held, 5);
              assertThrows(NotAcquired.class, () -> locks.lock("job", once()));
              return "done";
            });
    assertEquals("done", done);
    locks.lock("job", once()).close();
  }

  /** Its append-only file has the lock still, and no error in between ends the hold. */
  @Test
  void redisIsKilledAndComesBack() throws Exception {
    try (var held = locks.lock("outage", leased(12))) {
      servers.redis.kill();
      Thread.sleep(5000); // a renewal or two are answered with an error
      servers.redis.start();
      lasts(held, 9);
    }
    isFree("outage");
  }

  @Test
  void theProxyIsKilled() throws Exception {
    try (var held = locks.lock("restart", leased(8))) {
      servers.proxy.kill();
      servers.proxy.start();
      lasts(held, 10);
    }
    var lost =
        assertThrows(
            Lost.class,
            () -> {
              try (var held = locks.lock("dead", leased(1))) {
                servers.proxy.kill();
                held.whenLost().toCompletableFuture().get(20, TimeUnit.SECONDS);
                servers.proxy.start();
                Thread.sleep(1000);
                assertTrue(held.lost(), "a lost lock came back");
              }
            });
    assertTrue(lost.getMessage().contains("in time"), lost::getMessage);
    assertThrows(
        Lost.class,
        () -> {
          try (var held = locks.lock("watched", options(true))) {
            servers.proxy.kill();
            servers.proxy.start();
            until(held::lost);
          }
        });
  }

  /** Questions without an answer end after a third of the lease, those for a new connection included. */
  @Test
  void theProxySaysNothing() throws Exception {
    var held = locks.lock("silent", leased(12));
    servers.proxy.signal("STOP");
    try {
      Thread.sleep(6000);
    } finally {
      servers.proxy.signal("CONT");
    }
    lasts(held, 8);
    held.close();
    var other = locks.lock("silent", leased(3));
    servers.proxy.signal("STOP");
    try {
      other.whenLost().toCompletableFuture().get(20, TimeUnit.SECONDS);
      assertThrows(Lost.class, other::close);
      assertThrows(LockException.class, () -> locks.lock("silent", leased(3)));
    } finally {
      servers.proxy.signal("CONT");
    }
    locks.lock("silent", within(20)).close();
  }

  /** LOCK is asked again while the proxy is away, and UNLOCK too. */
  @Test
  void theProxyIsAwayForAMoment() throws Exception {
    servers.proxy.kill();
    var back = Executors.newSingleThreadScheduledExecutor();
    back.schedule(this::restart, 1, TimeUnit.SECONDS);
    try (var held = locks.lock("moment", leased(300))) { // UNLOCK is asked four times, one sixtieth of the lease apart
      servers.proxy.kill();
      back.schedule(this::restart, 1, TimeUnit.SECONDS);
    }
    back.shutdown();
    assertTrue(back.awaitTermination(30, TimeUnit.SECONDS));
    locks.lock("moment", once()).close();
  }

  private Void restart() throws Exception {
    servers.proxy.start();
    return null;
  }

  @Test
  void aBalancerClosesWhatIsIdle() throws Exception {
    try (var balancer = new Servers.Balancer(servers.proxy.port);
        var far = connect(balancer.port());
        var locks = far.locks()) {
      try (var held = locks.lock("idle", leased(9))) {
        lasts(held, 10);
        assertTrue(balancer.cut.get() > 0);
      }
      Thread.sleep(2000);
      locks.lock("idle").close();
    }
  }

  @Test
  void aBrokenWriteLeavesTheLockToItsLease() throws Exception {
    var options = leased(2);
    var broken = broken();
    Locks.Work<Void, RuntimeException> work =
        held -> {
          throw new IllegalStateException("as a framework does it", broken);
        };
    assertSame(broken, assertThrows(RuntimeException.class, () -> locks.with("write", options, work)).getCause());
    assertThrows(NotAcquired.class, () -> locks.lock("write", once()));
    try (var held = locks.lock("write", within(20).lease(Duration.ofSeconds(2)))) {
      held.leave();
    }
    assertThrows(NotAcquired.class, () -> locks.lock("write", once()));
    locks.lock("write", within(20)).close();
    try (var held = locks.lock("write", options(true))) {
      held.leave();
    }
    isFree("write");
  }

  @Test
  void redisRefuses() throws Exception {
    client.ask("SET", "text", "a string is no lock");
    var error = assertThrows(LockException.class, () -> locks.lock("text"));
    assertTrue(error.getCause().getMessage().startsWith("WRONGTYPE"), error::getMessage);
    try (var bare = connect(servers.redis.port)) {
      error = assertThrows(LockException.class, () -> bare.locks().lock("bare"));
      assertTrue(error.getMessage().startsWith("bare: this is no lockproxy: "), error::getMessage);
    }
  }
}
