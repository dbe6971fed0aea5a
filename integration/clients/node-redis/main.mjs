// node-redis through lockproxy: every step prints "ok <step>", and the first failure ends the program.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient, createClientPool, createCluster, WatchError } from 'redis';

const url = `redis://${process.env.LOCKPROXY_ADDR}`;
const parts = (process.env.PARTS ?? 'data,caching,locks').split(',');
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const ok = (step) => console.log('ok', step);

async function connect(options = {}) {
  const client = createClient({ url, RESP: 3, ...options });
  client.on('error', () => {}); // the command that failed says it
  return client.connect();
}

const inCluster = process.env.LOCKPROXY_MODE === 'cluster';

// shared is what the application shares: a client of one Redis, or of a cluster. Of the latter send() is told the key.
async function shared() {
  if (!inCluster) {
    const client = await connect();
    return Object.assign(client, { send: (words) => client.sendCommand(words) });
  }
  const client = createCluster({ rootNodes: [{ url }], RESP: 3 });
  client.on('error', () => {});
  await client.connect();
  return Object.assign(client, { send: (words) => client.sendCommand(words[1], false, words) });
}

// single is a client of the one node that a cluster's client has found.
const single = (r) => (inCluster ? r.nodeClient(r.masters[0]) : r);

// lose asks whoever runs this program to delete the lock behind the proxy's back, and waits until the proxy has noticed.
async function lose(key) {
  console.log('lose', key);
  await answers.next();
}

async function handshake(r) {
  const node = await single(r);
  if (inCluster) assert.deepEqual([r.masters.length, r.masters[0].port], [1, Number(url.split(':')[2])]);
  const about = await node.sendCommand(['CLIENT', 'INFO']); // HELLO 3 and CLIENT SETINFO were sent by node-redis itself
  assert.match(about, / resp=3/);
  if (about.includes('lib-name')) assert.match(about, / lib-name=node-redis /);
  ok('handshake');
}

async function data(r) {
  await r.set('greeting', 'hello', { expiration: { type: 'EX', value: 60 } });
  assert.equal(await r.get('greeting'), 'hello');
  assert.equal(await r.get('nothing'), null);
  assert.equal(await r.incrBy('n', 42), 42);
  ok('strings');

  assert.equal(await r.hSet('user', { name: 'Ada', born: 1815 }), 2);
  assert.deepEqual({ ...await r.hGetAll('user') }, { name: 'Ada', born: '1815' });
  ok('hashes');

  const replies = await Promise.all( // what is sent in one turn travels as one pipeline
    Array.from({ length: 1000 }, (_, i) => [r.set(`p:${i}`, i), r.get(`p:${i}`)]).flat());
  assert.equal(replies[1999], '999');
  ok('pipeline');

  assert.deepEqual(await r.multi().set('a', 1).incr('a').get('a').exec(), ['OK', 2, '2']);
  ok('transaction');

  const other = await connect();
  await other.watch('a');
  await r.set('a', 'changed by another');
  await assert.rejects(other.multi().set('a', 'lost update').exec(), WatchError);
  assert.equal(await r.get('a'), 'changed by another');
  ok('watch');

  const heard = [];
  await other.subscribe('news', (message) => heard.push(message));
  const hearers = await r.publish('news', 'extra'); // of several nodes one counts its own
  if (!process.env.LOCKPROXY_NODES) assert.equal(hearers, 1);
  await until(() => heard.length === 1);
  await other.unsubscribe('news');
  assert.equal(await other.get('a'), 'changed by another');
  assert.deepEqual(heard, ['extra']);
  ok('pubsub');

  if (inCluster) {
    const channels = ['shard', 'shard:1', 'shard:2']; // of three slots, on one connection
    for (const channel of channels) await r.sSubscribe(channel, (message) => heard.push(message));
    for (const channel of channels) assert.equal(await r.sPublish(channel, `to ${channel}`), 1);
    await until(() => heard.length === 4);
    assert.deepEqual(heard.slice(1).sort(), channels.map((channel) => `to ${channel}`));
    for (const channel of channels) await r.sUnsubscribe(channel);
    ok('sharded');
  }

  assert.equal(await other.blPop('queue', 1), null);
  const job = other.blPop('queue', 4);
  await sleep(300);
  await r.rPush('queue', 'job');
  assert.deepEqual({ ...await job }, { key: 'queue', element: 'job' });
  ok('blocking');

  assert.deepEqual(await r.eval('return {KEYS[1], ARGV[1]}', { keys: ['k'], arguments: ['v'] }), ['k', 'v']);
  const sha = await (await single(r)).scriptLoad('return tonumber(ARGV[1]) * 2');
  assert.equal(await r.evalSha(sha, { arguments: ['21'] }), 42);
  await (await single(r)).scriptFlush();
  await assert.rejects(r.evalSha(sha, { arguments: ['21'] }), /^Error: NOSCRIPT|NOSCRIPT/);
  ok('scripts');
  await other.close();

  if (!parts.includes('caching')) return;
  const cached = await connect({ clientSideCache: { ttl: 0, maxEntries: 100 } }); // CLIENT TRACKING ON
  await r.set('cached', 'old');
  assert.equal(await cached.get('cached'), 'old');
  assert.equal(await cached.get('cached'), 'old');
  await r.set('cached', 'new');
  await until(async () => await cached.get('cached') === 'new');
  await cached.close();
  ok('caching');
}

async function until(happened) {
  for (let i = 0; i < 500; i++) {
    if (await happened()) return;
    await sleep(10);
  }
  assert.fail('never happened');
}

// critical adds one to a counter in two steps, which only the lock makes safe: the verbs for pools. clients/node is how programs use them.
async function critical(pool, key) {
  const owner = randomUUID();
  assert.equal(await pool.send(['LOCK', key, 'OWNER', owner, 'EX', '30', 'BLOCK', '4000']), 'OK');
  await pool.set('counter', Number(await pool.get('counter')) + 1);
  assert.equal(await pool.send(['UNLOCK', key, 'OWNER', owner]), 1);
}

async function locks(r) {
  const mine = await connect(); // the lock ends with this connection
  assert.equal(await mine.sendCommand(['LOCK', 'plain']), 'OK');
  await assert.rejects(mine.sendCommand(['LOCK', 'plain']), /OWNERREQUIRED/);
  assert.equal(await mine.sendCommand(['LOCK', 'plain', 'SELF']), 'OK');
  assert.equal(await mine.sendCommand(['UNLOCK', 'plain']), 0);
  assert.equal(await mine.sendCommand(['UNLOCK', 'plain']), 1);
  await assert.rejects(mine.sendCommand(['UNLOCK', 'plain']), /NOTHELD/);
  ok('lock');

  // A LOCK that waits holds up its connection: in a pool it keeps nobody else waiting. A cluster's client has none.
  const pool = inCluster ? null : await createClientPool({ url, RESP: 3 }, { maximum: 16 }).connect();
  if (pool) pool.send = (words) => pool.sendCommand(words);
  await r.set('counter', 0);
  await Promise.all(Array.from({ length: 8 }, async () => {
    const own = pool ?? await shared();
    for (let i = 0; i < 10; i++) await critical(own, 'section');
    if (!pool) own.destroy();
  }));
  assert.equal(await r.get('counter'), '80');
  if (pool) await pool.close();
  ok('owner');

  // Contention: nil at once, then a wait that the other's UNLOCK ends.
  const other = await connect();
  assert.equal(await mine.sendCommand(['LOCK', 'busy']), 'OK');
  assert.equal(await other.sendCommand(['LOCK', 'busy']), null);
  const granted = other.sendCommand(['LOCK', 'busy', 'BLOCK', '4000']);
  await sleep(300);
  await mine.sendCommand(['UNLOCK', 'busy']);
  assert.equal(await granted, 'OK');
  ok('contention');

  // BLOCK shorter than the client's patience: nil. Longer: it hangs up, and the wait ends with it.
  assert.equal(await r.send(['LOCK', 'busy', 'OWNER', 'late', 'EX', '30', 'BLOCK', '300']), null);
  const hasty = await connect({ socket: { socketTimeout: 500, reconnectStrategy: false } });
  await assert.rejects(hasty.sendCommand(['LOCK', 'busy', 'BLOCK', '60000']));
  assert.equal(await other.sendCommand(['UNLOCK', 'busy']), 1);
  assert.equal(await r.send(['LOCK', 'busy', 'OWNER', 'late', 'EX', '30', 'BLOCK', '4000']), 'OK');
  assert.equal(await r.send(['UNLOCK', 'busy', 'OWNER', 'late']), 1);
  ok('block');

  // A named owner's lock that is gone: nothing is pushed, and the owner is told when it asks.
  assert.equal(await r.send(['LOCK', 'lost', 'OWNER', 'me', 'EX', '30']), 'OK');
  await lose('lost');
  for (let i = 0; i < 20; i++) {
    assert.deepEqual(await Promise.all([r.set('after', i), r.get('after'), r.echo('x')]), ['OK', `${i}`, 'x']);
  }
  await assert.rejects(r.send(['UNLOCK', 'lost', 'OWNER', 'me']), /NOTHELD/);
  ok('lost');
  await Promise.all([mine.close(), other.close()]);
}

const r = await shared();
await handshake(r);
if (parts.includes('data')) await data(r);
if (parts.includes('locks')) await locks(r);
process.exit(0);
