// node-redis while Redis is lost: each line of the input is something to do, and "did ..." says what the application got.
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'redis';

function connect() {
  const client = createClient({ url: `redis://${process.env.LOCKPROXY_ADDR}` });
  client.on('error', () => {}); // the command that failed says it
  return client.connect();
}
const r = await connect();

async function subscribe() {
  const s = await connect();
  await new Promise((resolve, reject) => {
    s.subscribe('news', (message) => { if (message === 'last') resolve(); }).then(() => console.log('heard'), reject);
  });
  s.destroy();
}

const tasks = {
  ready: async () => { while (await r.ping().catch(() => '') !== 'PONG') await sleep(50); },
  get: () => r.get('k'),
  push: (item) => r.rPush('list', item),
  pipeline: (item) => Promise.all([r.rPush('list', item), r.get('k')]),
  multi: (item) => r.multi().rPush('list', item).get('k').exec(),
  blpop: () => r.blPop('queue', 0),
  subscribe,
};
for await (const line of createInterface({ input: process.stdin })) {
  const [op, item] = line.split(' ');
  try {
    await tasks[op](item);
    console.log('did ok');
  } catch (e) {
    console.log('did', e.constructor.name, e.message);
  }
}
process.exit(0);
