// Takes and gives back a lock of the proxy at a port, with what has been installed.
import { createClient } from 'redis';
import { withLock } from 'lockproxy';

const client = await createClient({ url: `redis://127.0.0.1:${process.argv[2]}` }).connect();
await withLock(client, 'installed', async ({ token, check }) => {
  check();
  if (!token || !(await client.exists('installed'))) throw new Error('it is not held');
}, { waitMs: 10_000 });
if (await client.exists('installed')) throw new Error('it was not given back');
await client.close();
