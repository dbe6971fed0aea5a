package io.github.lockproxy;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.file.Files;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** A redis-server and a lockproxy of the tests' own. LOCKPROXY is the program; it stands in the environment. */
final class Servers implements AutoCloseable {
  final Server redis;
  final Server proxy;

  Servers() throws Exception {
    String program = System.getenv("LOCKPROXY");
    if (program == null) throw new IllegalStateException("LOCKPROXY names no lockproxy");
    String files = Files.createTempDirectory("redis-").toString();
    int at = freePort();
    redis =
        new Server(at, "redis-server", "--port", "" + at, "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes",
            "--appendfsync", "always", "--dir", files);
    int front = freePort();
    proxy = new Server(front, program, "--listen", "127.0.0.1:" + front, "--upstream", "redis://127.0.0.1:" + at);
  }

  @Override
  public void close() throws Exception {
    proxy.kill();
    redis.kill();
  }

  private static int freePort() throws IOException {
    try (var s = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      return s.getLocalPort();
    }
  }

  /** A program that can be killed and started again. */
  static final class Server {
    final int port;
    private final List<String> words;
    private Process process;

    Server(int port, String... words) throws Exception {
      this.port = port;
      this.words = List.of(words);
      start();
    }

    void start() throws Exception {
      process =
          new ProcessBuilder(words)
              .redirectOutput(ProcessBuilder.Redirect.DISCARD)
              .redirectError(ProcessBuilder.Redirect.DISCARD)
              .start();
      long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
      while (!answers()) {
        if (System.nanoTime() - end > 0) throw new IllegalStateException(words.get(0) + " does not answer");
        Thread.sleep(20);
      }
    }

    void kill() throws Exception {
      process.destroyForcibly().waitFor();
    }

    /** Sends STOP, after which it says nothing and its connections stay, or CONT. */
    void signal(String name) throws Exception {
      new ProcessBuilder("kill", "-" + name, "" + process.pid()).start().waitFor();
    }

    private boolean answers() {
      try (var s = new Socket(InetAddress.getLoopbackAddress(), port)) {
        s.setSoTimeout(1000);
        s.getOutputStream().write("PING\r\n".getBytes());
        return s.getInputStream().read() == '+';
      } catch (IOException e) {
        return false;
      }
    }
  }

  /** Passes bytes on, and closes what was idle for a second, as load balancers do. */
  static final class Balancer implements AutoCloseable {
    private static final long IDLE = TimeUnit.SECONDS.toNanos(1);
    private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    final AtomicLong cut = new AtomicLong();

    Balancer(int to) throws IOException {
      go(
          () -> {
            while (true) {
              Socket client = listener.accept();
              Socket server = new Socket(InetAddress.getLoopbackAddress(), to);
              var last = new AtomicLong(System.nanoTime());
              go(() -> pass(client, server, last));
              go(() -> pass(server, client, last));
            }
          });
    }

    int port() {
      return listener.getLocalPort();
    }

    private void pass(Socket from, Socket to, AtomicLong last) throws IOException {
      var buffer = new byte[65_536];
      from.setSoTimeout(50);
      try (from; to) {
        InputStream in = from.getInputStream();
        while (true) {
          try {
            int n = in.read(buffer);
            if (n < 0) return;
            last.set(System.nanoTime());
            to.getOutputStream().write(buffer, 0, n);
          } catch (SocketTimeoutException e) {
            if (System.nanoTime() - last.get() < IDLE) continue;
            cut.incrementAndGet();
            return;
          }
        }
      }
    }

    private interface Work {
      void run() throws IOException;
    }

    private static void go(Work work) {
      var thread =
          new Thread(
              () -> {
                try {
                  work.run();
                } catch (IOException | UncheckedIOException e) {
                  // One of the two has closed it.
                }
              });
      thread.setDaemon(true);
      thread.start();
    }

    @Override
    public void close() throws IOException {
      listener.close();
    }
  }
}
