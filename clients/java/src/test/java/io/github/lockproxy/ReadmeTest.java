package io.github.lockproxy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The programs in README.md run as they are, but for the port. */
@Timeout(120)
class ReadmeTest {
  @Test
  void programs(@TempDir Path dir) throws Exception {
    try (var servers = new Servers()) {
      var blocks = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL).matcher(Files.readString(Path.of("README.md")));
      int n = 0;
      while (blocks.find()) run(dir, "Readme" + ++n, blocks.group(1), servers.proxy.port);
      assertEquals(2, n, "programs");
    }
  }

  private static void run(Path dir, String name, String text, int port) throws Exception {
    String program = text.replace("6380", "" + port);
    assertNotEquals(text, program);
    String imports = program.lines().filter(line -> line.startsWith("import ")).collect(Collectors.joining("\n"));
    String rest = program.lines().filter(line -> !line.startsWith("import ")).collect(Collectors.joining("\n"));
    Path file = dir.resolve(name + ".java");
    String method = "public static void run() throws Exception {\n" + rest + "\n}\n";
    Files.writeString(file, imports + "\npublic class " + name + " {\n" + method + "}\n");
    String path = System.getProperty("java.class.path");
    int code = ToolProvider.getSystemJavaCompiler().run(null, null, null, "-cp", path, file.toString());
    assertEquals(0, code, program);
    try (var loader = new URLClassLoader(new URL[] {dir.toUri().toURL()})) {
      loader.loadClass(name).getMethod("run").invoke(null);
    }
  }
}
