import java.io.IOException;
import java.io.UncheckedIOException;

/** A lockproxy for all tests. */
final class Lockproxy {
    private static final Process PROCESS = start();

    /** Where it listens, host:port. */
    static final String ADDRESS = readAddress();

    private static Process start() {
        try {
            return new ProcessBuilder("lockproxy", "--attached", "yes", "--listen", "127.0.0.1:0", "--log-level", "error")
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static String readAddress() {
        try {
            return PROCESS.inputReader().readLine();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
