// ioredis through lockproxy: every step prints "ok <step>", and the first failure ends the program.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { Cluster, Redis } from 'ioredis';

const parts = (process.env.PARTS ?? 'data,locks').split(',');
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const ok = (step) => console.log('ok', step);
const connect = (options = {}) => {
  const client = new Redis(`redis://${process.env.LOCKPROXY_ADDR}`, options);
  client.on('error', () => {}); // the command that failed says it
  return client;
};
const inCluster = process.env.LOCKPROXY_MODE === 'cluster';
const [host, port] = process.env.LOCKPROXY_ADDR.split(':');
// pool is what the application shares: a client of one Redis, or of a cluster.
const pool = (options = {}) => {
  if (!inCluster) return connect();
  const client = new Cluster([{ host, port: Number(port) }], options);
  client.on('error', () => {});
  return client;
};

// lose asks whoever runs this program to delete the lock behind the proxy's back, and waits until the proxy has noticed.
async function lose(key) {
  console.log('lose', key);
  await answers.next();
}

async function handshake(r) {
  if (inCluster) {
    await r.ping();
    assert.deepEqual(r.nodes().map((node) => node.options.port), [Number(port)]);
  }
  const about = await (inCluster ? r.nodes()[0] : r).client('INFO'); // HELLO 3 and CLIENT SETINFO were sent by ioredis itself
  assert.match(about, / resp=3/);
  if (about.includes('lib-name')) assert.match(about, / lib-name=ioredis/);
  ok('handshake');
}

async function data(r) {
  await r.set('greeting', 'hello', 'EX', 60);
  assert.equal(await r.get('greeting'), 'hello');
  assert.equal(await r.get('nothing'), null);
  assert.equal(await r.incrby('n', 42), 42);
  ok('strings');

  assert.equal(await r.hset('user', { name: 'Ada', born: 1815 }), 2);
  assert.deepEqual({ ...await r.hgetall('user') }, { name: 'Ada', born: '1815' });
  ok('hashes');

  const pipeline = r.pipeline();
  for (let i = 0; i < 1000; i++) pipeline.set(`p:${i}`, i).get(`p:${i}`);
  const replies = await pipeline.exec();
  assert.equal(replies.length, 2000);
  assert.deepEqual(replies[1999], [null, '999']);
  ok('pipeline');

  assert.deepEqual(await r.multi().set('a', 1).incr('a').get('a').exec(), [[null, 'OK'], [null, 2], [null, '2']]);
  ok('transaction');

  const other = connect();
  await other.watch('a');
  await r.set('a', 'changed by another');
  assert.equal(await other.multi().set('a', 'lost update').exec(), null);
  assert.equal(await r.get('a'), 'changed by another');
  ok('watch');

  const heard = [];
  other.on('message', (channel, message) => heard.push(`${channel} ${message}`));
  assert.equal(await other.subscribe('news'), 1);
  const hearers = await r.publish('news', 'extra'); // of several nodes one counts its own
  if (!process.env.LOCKPROXY_NODES) assert.equal(hearers, 1);
  await until(() => heard.length === 1);
  assert.equal(await other.unsubscribe('news'), 0);
  assert.equal(await other.get('a'), 'changed by another');
  assert.deepEqual(heard, ['news extra']);
  ok('pubsub');

  if (inCluster) await sharded(r);

  assert.equal(await other.blpop('queue', 1), null);
  const job = other.blpop('queue', 4);
  await sleep(300);
  await r.rpush('queue', 'job');
  assert.deepEqual(await job, ['queue', 'job']);
  ok('blocking');

  assert.deepEqual(await r.eval('return {KEYS[1], ARGV[1]}', 1, 'k', 'v'), ['k', 'v']);
  r.defineCommand('double', { numberOfKeys: 0, lua: 'return tonumber(ARGV[1]) * 2' }); // EVALSHA; after NOSCRIPT: EVAL
  assert.equal(await r.double(21), 42);
  await r.script('FLUSH');
  assert.equal(await r.double(4), 8);
  ok('scripts');
  await other.quit();
}

async function sharded(r) {
  const heard = [];
  const listener = pool({ shardedSubscribers: true });
  listener.on('smessage', (channel, message) => heard.push(`${channel} ${message}`));
  const channels = ['shard', 'shard:1', 'shard:2']; // of three slots, on one connection
  for (const channel of channels) await listener.ssubscribe(channel);
  for (const channel of channels) assert.equal(await r.spublish(channel, 'extra'), 1);
  await until(() => heard.length === 3);
  assert.deepEqual(heard.sort(), ['shard extra', 'shard:1 extra', 'shard:2 extra']);
  listener.disconnect();
  ok('sharded');
}

async function until(happened) {
  for (let i = 0; i < 500; i++) {
    if (await happened()) return;
    await sleep(10);
  }
  assert.fail('never happened');
}

// critical adds one to a counter in two steps, which only the lock makes safe. The connection is the caller's own while it
// waits: ioredis has no pool, and a LOCK that waits holds up whatever is sent behind it.
async function critical(r, key) {
  const owner = randomUUID();
  while (!await r.call('LOCK', key, 'OWNER', owner, 'EX', '30', 'BLOCK', 2000));
  try {
    await r.set('counter', Number(await r.get('counter')) + 1);
  } finally {
    await r.call('UNLOCK', key, 'OWNER', owner);
  }
}

async function locks(r) {
  const mine = connect(); // the lock ends with this connection
  assert.equal(await mine.call('LOCK', 'plain'), 'OK');
  await assert.rejects(mine.call('LOCK', 'plain'), /OWNERREQUIRED/);
  assert.equal(await mine.call('LOCK', 'plain', 'SELF'), 'OK');
  assert.equal(await mine.call('UNLOCK', 'plain'), 0);
  assert.equal(await mine.call('UNLOCK', 'plain'), 1);
  await assert.rejects(mine.call('UNLOCK', 'plain'), /NOTHELD/);
  ok('lock');

  await r.set('counter', 0);
  await Promise.all(Array.from({ length: 8 }, async () => {
    const own = pool();
    for (let i = 0; i < 10; i++) await critical(own, 'section');
    own.disconnect();
  }));
  assert.equal(await r.get('counter'), '80');
  ok('owner');

  // Contention: nil at once, then a wait that the other's UNLOCK ends.
  const other = connect();
  assert.equal(await mine.call('LOCK', 'busy'), 'OK');
  assert.equal(await other.call('LOCK', 'busy'), null);
  const granted = other.call('LOCK', 'busy', 'BLOCK', 4000);
  await sleep(300);
  await mine.call('UNLOCK', 'busy');
  assert.equal(await granted, 'OK');
  ok('contention');

  // BLOCK shorter than the client's patience: nil. Longer: commandTimeout gives up, but the connection lives, and so does
  // the wait. Only disconnect() ends it.
  assert.equal(await r.call('LOCK', 'busy', 'OWNER', 'late', 'EX', '30', 'BLOCK', 300), null);
  const hasty = connect({ commandTimeout: 500 });
  await assert.rejects(hasty.call('LOCK', 'busy', 'BLOCK', 60000), /timed out/);
  hasty.disconnect();
  const waiting = mine.duplicate(); // so that what mine sends meanwhile is not held up
  const never = waiting.call('LOCK', 'busy', 'BLOCK', 60000);
  await sleep(300);
  assert.equal(await mine.ping(), 'PONG');
  waiting.disconnect();
  await assert.rejects(never, /UNBLOCKED|closed/);
  assert.equal(await other.call('UNLOCK', 'busy'), 1);
  assert.equal(await r.call('LOCK', 'busy', 'OWNER', 'late', 'EX', '30', 'BLOCK', 4000), 'OK');
  assert.equal(await r.call('UNLOCK', 'busy', 'OWNER', 'late'), 1);
  ok('block');

  // The news of a lost lock arrives while the connection is idle: later replies must be the right ones. ioredis has no
  // handler for it.
  assert.equal(await r.call('LOCK', 'lost'), 'OK');
  await lose('lost');
  for (let i = 0; i < 20; i++) {
    assert.deepEqual(await Promise.all([r.set('after', i), r.get('after'), r.echo('x')]), ['OK', `${i}`, 'x']);
  }
  await assert.rejects(r.call('UNLOCK', 'lost'), /LOCKLOST/);
  ok('lost');
  mine.disconnect();
  other.disconnect();
}

const r = pool();
await handshake(r);
if (parts.includes('data')) await data(r);
if (parts.includes('locks')) await locks(r);
process.exit(0);
