import { createClient } from 'redis';
import { expect, inject, test } from 'vitest';

test('one owner at a time', async () => {
  const client = await createClient({ url: inject('lockproxy') }).connect();
  expect(await client.sendCommand(['LOCK', 'orders', 'OWNER', 'a', 'EX', '30'])).toBe('OK');
  expect(await client.sendCommand(['LOCK', 'orders', 'OWNER', 'b', 'EX', '30'])).toBe(null);
  await client.close();
});
