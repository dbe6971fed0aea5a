// ioredis while Redis is lost: each line of the input is something to do, and "did ..." says what the application got.
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';

const connect = () => {
  const client = new Redis(`redis://${process.env.LOCKPROXY_ADDR}`);
  client.on('error', () => {}); // the command that failed says it
  return client;
};
const r = connect();

// execute gives the first error in a pipeline's replies to whoever waits for it.
async function execute(pipeline) {
  for (const [error] of await pipeline.exec()) if (error) throw error;
}

function subscribe() {
  const s = connect();
  return new Promise((resolve, reject) => {
    s.on('message', (_, message) => { if (message === 'last') { s.disconnect(); resolve(); } });
    s.on('end', () => reject(new Error('ended')));
    s.subscribe('news').then(() => console.log('heard'), reject);
  });
}

const tasks = {
  ready: async () => { while (await r.ping().catch(() => '') !== 'PONG') await sleep(50); },
  get: () => r.get('k'),
  push: (item) => r.rpush('list', item),
  pipeline: (item) => execute(r.pipeline().rpush('list', item).get('k')),
  multi: (item) => execute(r.multi().rpush('list', item).get('k')),
  blpop: () => r.blpop('queue', 0),
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
