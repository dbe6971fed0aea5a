// Posts to each of the URLs in its arguments while it holds a lock, and stops when the lock is lost. check() asks by the clock, without a
// question to Redis. The signal ends a request that is under way.
import { createClient } from 'redis';
import { Lost, withLock } from 'lockproxy';

const client = await createClient({ url: 'redis://localhost:6380' }).on('error', console.error).connect();
try {
  await withLock(client, 'export', async ({ check, signal }) => {
    for (const url of process.argv.slice(2)) {
      check();
      await fetch(url, { method: 'POST', signal });
    }
  }, { leaseMs: 6000 });
} catch (error) {
  if (!(error instanceof Lost)) throw error;
  console.log(`stopped: ${error.message}`);
  process.exitCode = 1;
} finally {
  client.destroy();
}
