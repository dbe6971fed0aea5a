import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import org.junit.jupiter.api.Test;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.commands.ProtocolCommand;

class OrdersTest {
    private static final ProtocolCommand LOCK = () -> "LOCK".getBytes();

    @Test
    void oneOwnerAtATime() {
        try (Jedis client = new Jedis(HostAndPort.from(Lockproxy.ADDRESS))) {
            assertArrayEquals("OK".getBytes(), (byte[]) client.sendCommand(LOCK, "orders", "OWNER", "a", "EX", "30"));
            assertNull(client.sendCommand(LOCK, "orders", "OWNER", "b", "EX", "30"));
        }
    }
}
