// Runs a command while it holds the lock "orders" by Redisson, at Redis itself. orders.py takes the same lock through a lockproxy.
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.config.Config;

public class Orders {
    public static void main(String[] command) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://localhost:6379");
        var redisson = Redisson.create(config);
        RLock lock = redisson.getLock("orders");
        lock.lock();
        try {
            new ProcessBuilder(command).inheritIO().start().waitFor(); // your work
        } finally {
            lock.unlock();
            redisson.shutdown();
        }
    }
}
