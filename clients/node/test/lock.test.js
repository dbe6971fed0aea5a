// What a program may rely on, before real servers, with both libraries and both kinds of lock.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import Redis from 'ioredis';
import { createClient, createCluster } from 'redis';
import { Lost, NotAcquired, acquire, withLock } from '../index.js';
import { balancer, cut, start } from './servers.js';

let servers;
before(async () => { servers = await start(); });
after(async () => {
  await servers.proxy.kill();
  await servers.redis.kill();
});

const libraries = {
  'node-redis': async (port) => {
    const c = createClient({ url: `redis://127.0.0.1:${port}` });
    c.on('error', () => {});
    await c.connect();
    return { client: c, ask: (...words) => c.sendCommand(words), close: () => c.destroy() };
  },
  ioredis: async (port) => {
    const c = new Redis(port, '127.0.0.1');
    c.on('error', () => {});
    return { client: c, ask: (...words) => c.call(...words), close: () => c.disconnect() };
  },
};
const until = async (what, seconds = 20) => {
  for (const end = Date.now() + seconds * 1000; !what(); await sleep(20)) assert.ok(Date.now() < end, 'in vain');
};

for (const [name, connect] of Object.entries(libraries)) {
  describe(name, () => {
    let r;
    const key = (what) => `${what} ${name}`;
    const isFree = async (...names) => {
      for (const end = Date.now() + 20_000; Number(await r.ask('EXISTS', ...names)) > 0; await sleep(20)) assert.ok(Date.now() < end, 'held');
    };
    before(async () => { r = await connect(servers.proxy.port); });
    after(() => r.close());

    for (const watched of [false, true]) {
      test(`150 at once, watched ${watched}`, async () => {
        await r.ask('SET', 'n', '0');
        await Promise.all(Array.from({ length: 150 }, () => withLock(r.client, key('pool'), async () => {
          const n = Number(await r.ask('GET', 'n'));
          await sleep(2);
          await r.ask('SET', 'n', `${n + 1}`);
        }, { waitMs: 60_000, watched })));
        assert.equal(Number(await r.ask('GET', 'n')), 150);
      });

      // 0 asks once, and without waitMs it takes as long as it takes: here several of the questions that a wait consists of.
      test(`wait, watched ${watched}`, async () => {
        let later, got = false;
        await withLock(r.client, key('busy'), async ({ owner, token }) => {
          assert.match(owner, watched ? /^$/ : /^.+:\d+:[0-9a-f-]{36}$/);
          assert.ok(token > 0);
          for (const waitMs of [0, 300]) {
            const began = Date.now();
            await assert.rejects(withLock(r.client, key('busy'), () => {}, { waitMs }), NotAcquired);
            assert.ok(Date.now() - began >= waitMs - 1);
          }
          later = withLock(r.client, key('busy'), () => { got = true; }, { leaseMs: 1000, watched });
          await sleep(3000);
          assert.ok(!got);
        }, { watched });
        await later;
        assert.ok(got);
        await assert.rejects(withLock(r.client, key('busy'), () => {}, { waitMs: -1 }), RangeError);
      });

      // Three of four have a place. The fourth gets that of one that gives it back, or whose connection is closed.
      test(`limit, watched ${watched}`, async () => {
        const limit = (waitMs) => acquire(r.client, key('limit'), { limit: 3, waitMs, watched });
        const held = await Promise.all([limit(0), limit(0), limit(0)]);
        assert.equal(held[0].token, 0);
        await assert.rejects(limit(0), NotAcquired);
        const fourth = limit(60_000);
        const waits = async () => /waiting/.test(JSON.stringify(await r.ask('LOCKLIST', 'MATCH', key('limit'))));
        for (const end = Date.now() + 20_000; !await waits(); await sleep(20)) assert.ok(Date.now() < end, 'it does not wait');
        await held.pop().release();
        held.unshift(await fourth);
        const ended = held.pop();
        if (watched) ended.leave(); // its connection is closed, without UNLOCK
        await ended.release();
        held.push(await limit(20_000));
        for (const one of held) await one.release();
        assert.equal(Number(await r.ask('EXISTS', key('limit'))), 0);
      });

      test(`freed by force, watched ${watched}`, async () => {
        await assert.rejects(withLock(r.client, key('forced'), async ({ signal, lost, check }) => {
          await r.ask('UNLOCK', key('forced'), 'FORCE');
          await until(() => signal.aborted);
          assert.ok(lost());
          assert.throws(check, Lost);
        }, { leaseMs: 1000, watched }), Lost);
        // The work ends before the next renewal, and UNLOCK tells.
        await assert.rejects(withLock(r.client, key('forced'), () => r.ask('UNLOCK', key('forced'), 'FORCE'), { watched }), Lost);
        const mine = new TypeError('mine');
        await assert.rejects(withLock(r.client, key('forced'), async () => {
          await r.ask('UNLOCK', key('forced'), 'FORCE');
          throw mine;
        }, { watched }), (error) => error === mine);
      });

      test(`long work, watched ${watched}`, async () => {
        assert.equal(await withLock(r.client, key('job'), async () => {
          await sleep(3000);
          await assert.rejects(withLock(r.client, key('job'), () => {}, { waitMs: 0 }), NotAcquired);
          return 'done';
        }, { leaseMs: 1000, watched }), 'done');
      });

      test(`a wait is given up, watched ${watched}`, async () => {
        await withLock(r.client, key('given up'), async () => {
          const reason = new Error('mine');
          const end = new AbortController();
          setTimeout(() => end.abort(reason), 200);
          await assert.rejects(withLock(r.client, key('given up'), () => assert.fail('granted'), { waitMs: Infinity, watched, signal: end.signal }),
            (error) => error === reason);
        });
        await withLock(r.client, key('given up'), () => {}, { waitMs: 5000 });
      });
    }

    // Also when the grant has arrived already.
    test('waits that are given up leave nothing', async () => {
      await Promise.all(Array.from({ length: 20 }, (_, i) => withLock(r.client, key(`warm${i}`), () => sleep(300))));
      const cell = new Int32Array(new SharedArrayBuffer(4));
      const names = Array.from({ length: 40 }, (_, i) => key(`left${i}`));
      for (const [i, name] of names.entries()) {
        const end = new AbortController();
        const wait = withLock(r.client, name, () => {}, { signal: end.signal }).catch(() => {});
        for (let j = 0; j < 1 + i % 4; j++) await new Promise((done) => setImmediate(done));
        Atomics.wait(cell, 0, 0, 20); // the reply arrives
        end.abort();
        await wait;
      }
      await isFree(...names);
      await withLock(r.client, key('waited for'), async () => {
        const wait = withLock(r.client, key('waited for'), () => {}, { signal: AbortSignal.timeout(200), leaseMs: 120_000 });
        await assert.rejects(wait, (error) => error.name === 'TimeoutError');
        const waits = async () => /waiting/.test(JSON.stringify(await r.ask('LOCKLIST', 'MATCH', key('waited for'))));
        for (const end = Date.now() + 15_000; await waits(); await sleep(20)) assert.ok(Date.now() < end, 'LOCK alone waits for 30 s');
      });
    });

    test('a grant whose reply was lost is given back', async () => {
      const server = await cut(servers.proxy.port, 2);
      const far = await connect(server.address().port);
      await assert.rejects(withLock(far.client, key('unheard'), () => assert.fail('heard'), { waitMs: 0 }));
      await isFree(key('unheard'));
      await withLock(far.client, key('unheard'), () => {}, { waitMs: 0 });
      far.close();
      server.close();
    });

    test('connections are closed with their client', async () => {
      const connections = async () => `${await r.ask('CLIENT', 'LIST')}`.trim().split('\n').length;
      const before = await connections();
      for (let i = 0; i < 5; i++) {
        const other = await connect(servers.proxy.port);
        await withLock(other.client, key('closed'), () => {});
        if (i === 0) {
          const late = await acquire(other.client, key('closed'));
          other.close();
          await late.release();
        } else {
          other.close();
        }
      }
      for (const end = Date.now() + 10_000; await connections() > before; await sleep(50)) assert.ok(Date.now() < end, 'still open');
    });

    test('acquire and release', async () => {
      for (const watched of [false, true]) {
        const held = await acquire(r.client, key('object'), { watched });
        await assert.rejects(acquire(r.client, key('object'), { waitMs: 0 }), NotAcquired);
        await held.release();
        await held.release();
        const lost = await acquire(r.client, key('object'), { watched, waitMs: 0 });
        await r.ask('UNLOCK', key('object'), 'FORCE');
        await assert.rejects(lost.release(), Lost);
        const left = await acquire(r.client, key('object'), { watched, waitMs: 0, leaseMs: 1000 });
        left.leave();
        await left.release();
        if (!watched) await assert.rejects(acquire(r.client, key('object'), { waitMs: 0 }), NotAcquired);
        await withLock(r.client, key('object'), () => {}, { waitMs: 3000 });
      }
    });

    test('a server that is no lockproxy', async () => {
      const bare = await connect(servers.redis.port);
      await assert.rejects(withLock(bare.client, key('bare'), () => {}), /^Error: this is no lockproxy: /);
      bare.close();
    });

    test('options that cannot be', async () => {
      const options = [[{ wait: 1 }, TypeError], [{ leaseMs: '3000' }, TypeError], [{ waitMs: null }, TypeError], [{ leaseMs: 1500.5 }, RangeError],
        [{ leaseMs: Infinity }, RangeError], [{ waitMs: NaN }, RangeError], [{ leaseMs: 999 }, RangeError], [{ watched: 1 }, TypeError],
        [{ limit: '5' }, TypeError], [{ limit: 0 }, RangeError], [{ limit: 5, fair: true }, TypeError],
        [{ signal: {} }, TypeError], [null, TypeError], [5, TypeError]];
      for (const [o, kind] of options) await assert.rejects(withLock(r.client, key('options'), () => {}, o), kind, JSON.stringify(o));
      await assert.rejects(withLock(r.client, key('options'), { waitMs: 1 }), TypeError);
      await assert.rejects(withLock(r.client, undefined, () => {}), TypeError);
      await withLock(r.client, key('options'), () => {}, { waitMs: undefined });
    });

    test('a wait longer than the lease', async () => {
      const holder = withLock(r.client, key('long'), () => sleep(3000));
      await sleep(200);
      await withLock(r.client, key('long'), async ({ lost }) => {
        for (let i = 0; i < 20; i++) {
          assert.ok(!lost());
          await sleep(100);
        }
      }, { waitMs: Infinity, leaseMs: 1000 });
      await holder;
    });

    test('Redis is killed and comes back', async () => {
      await withLock(r.client, key('outage'), async ({ lost }) => {
        await servers.redis.kill();
        await sleep(3000); // a renewal or two are answered with an error
        await servers.redis.start();
        for (let i = 0; i < 40; i++) {
          assert.ok(!lost());
          await sleep(100);
        }
      }, { leaseMs: 6000 });
      await withLock(r.client, key('outage'), () => {}, { waitMs: 3000 });
    });

    test('the proxy is killed and comes back', async () => {
      await withLock(r.client, key('restart'), async ({ lost }) => {
        await servers.proxy.kill();
        await servers.proxy.start();
        await sleep(6000);
        assert.ok(!lost());
      }, { leaseMs: 5000 });
      await assert.rejects(withLock(r.client, key('dead'), async ({ signal }) => {
        await servers.proxy.kill();
        await until(() => signal.aborted);
        await servers.proxy.start();
      }, { leaseMs: 1000 }), Lost);
      await assert.rejects(withLock(r.client, key('watched'), async ({ signal }) => {
        await servers.proxy.kill();
        await servers.proxy.start();
        await until(() => signal.aborted);
      }, { watched: true }), Lost);
    });

    test('a balancer closes what is idle', async () => {
      const server = await balancer(servers.proxy.port, 1000);
      const far = await connect(server.address().port);
      await withLock(far.client, key('idle'), async ({ lost }) => {
        await sleep(7000);
        assert.ok(!lost());
      }, { leaseMs: 6000 });
      await sleep(2000);
      await withLock(far.client, key('idle'), () => {});
      far.close();
      server.close();
    });

    test('a broken write leaves the lock to its lease', async () => {
      const broken = Object.assign(new Error('no answer'), { code: 'ECONNRESET' });
      await assert.rejects(withLock(r.client, key('write'), () => { throw broken; }, { leaseMs: 2000 }), (error) => error === broken);
      await assert.rejects(withLock(r.client, key('write'), () => {}, { waitMs: 0 }), NotAcquired);
      await withLock(r.client, key('write'), () => {}, { waitMs: 10_000 });
      const file = Object.assign(new Error('no such file'), { code: 'ENOENT' });
      await assert.rejects(withLock(r.client, key('write'), () => { throw file; }), (error) => error === file);
      await withLock(r.client, key('write'), () => {}, { waitMs: 0 });
    });
  });
}

test('a pool of node-redis is refused with a reason', async () => {
  await assert.rejects(withLock({ sendCommand() {} }, 'orders', () => {}), /createClient/);
});

test('clients of a cluster', async () => {
  const { redis, proxy } = await start('--present', 'cluster');
  const node = { host: '127.0.0.1', port: proxy.port };
  const cluster = createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${proxy.port}` }] });
  await cluster.connect();
  const others = [new Redis.Cluster([node]), new Redis.Cluster([node], { lazyConnect: true }), cluster];
  await Promise.all(others.map((client, i) => withLock(client, `cluster ${i}`, () => {})));
  await withLock(others[0], 'cluster', async () => {
    for (const client of others) await assert.rejects(acquire(client, 'cluster', { waitMs: 0 }), NotAcquired);
  });
  for (const client of others) client[client === cluster ? 'destroy' : 'disconnect']();
  const look = createClient({ url: `redis://127.0.0.1:${proxy.port}` });
  await look.connect();
  for (const end = Date.now() + 10_000; `${await look.sendCommand(['CLIENT', 'LIST'])}`.trim().includes('\n'); await sleep(50)) {
    assert.ok(Date.now() < end, 'connections are open');
  }
  look.destroy();
  await proxy.kill();
  await redis.kill();
});
