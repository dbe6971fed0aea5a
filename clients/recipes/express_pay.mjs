// Express: one request for an order at a time, over all processes of all machines. The next one waits two seconds at most.
import express from 'express';
import { createClient } from 'redis';
import { NotAcquired, withLock } from 'lockproxy';

const client = await createClient({ url: 'redis://localhost:6380' }).on('error', console.error).connect();
const app = express();

app.post('/orders/:order/pay', async (req, res) => {
  const { order } = req.params;
  try {
    const first = await withLock(client, `order:${order}`, () => client.set(`paid:${order}`, '1', { NX: true }), { waitMs: 2000 });
    res.json({ paid: first !== null });
  } catch (error) {
    if (!(error instanceof NotAcquired)) throw error; // a loss is answered with 500
    res.set('Retry-After', '2').status(409).json({ error: 'busy' });
  }
});

app.listen(process.env.PORT ?? 3000);
