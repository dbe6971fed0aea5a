// A redis-server and a lockproxy of the tests' own. LOCKPROXY is the program; it stands in the environment.
import { spawn } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { createServer, createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((done) => server.once('listening', done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

const answers = (port) => new Promise((done) => {
  const socket = createConnection(port, '127.0.0.1', () => socket.write('PING\r\n'));
  socket.on('data', (data) => { socket.destroy(); done(`${data}`.startsWith('+PONG')); });
  socket.on('error', () => done(false));
  socket.on('close', () => done(false));
});

class Server {
  constructor(port, words) { Object.assign(this, { port, words }); }

  async start() {
    this.process = spawn(this.words[0], this.words.slice(1), { stdio: 'ignore' });
    for (let i = 0; !await answers(this.port); i++) {
      if (i > 1500) throw new Error(`${this.words[0]} does not answer`);
      await sleep(20);
    }
    return this;
  }

  async kill() {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const gone = new Promise((done) => this.process.once('exit', done));
    this.process.kill('SIGKILL');
    await gone;
  }
}

export async function start(...more) {
  const at = await freePort(), front = await freePort();
  const redis = await new Server(at, ['redis-server', '--port', `${at}`, '--bind', '127.0.0.1', '--save', '', '--appendonly', 'yes',
    '--appendfsync', 'always', '--dir', mkdtempSync(join(tmpdir(), 'redis-'))]).start();
  const proxy = await new Server(front, [process.env.LOCKPROXY, '--listen', `127.0.0.1:${front}`, '--upstream', `redis://127.0.0.1:${at}`,
    ...more]).start();
  return { redis, proxy };
}

// balancer passes bytes on, and closes what was idle for so many ms, as load balancers do.
export async function balancer(to, idle) {
  const server = createServer((client) => {
    const up = createConnection(to, '127.0.0.1');
    for (const [a, b] of [[client, up], [up, client]]) {
      a.setTimeout(idle, () => { client.destroy(); up.destroy(); });
      a.on('error', () => {}).on('close', () => b.destroy()).pipe(b);
    }
  }).listen(0, '127.0.0.1');
  await new Promise((done) => server.once('listening', done));
  return server;
}

// cut passes bytes on, and closes a connection at the reply to each of the first few LOCKs.
export async function cut(to, times) {
  const server = createServer((client) => {
    const up = createConnection(to, '127.0.0.1');
    let asked = false;
    client.on('data', (data) => { asked = `${data}`.includes('LOCK\r\n') && !`${data}`.includes('UNLOCK'); up.write(data); });
    up.on('data', (data) => { if (asked && times-- > 0) client.destroy(); else client.write(data); });
    for (const [a, b] of [[client, up], [up, client]]) a.on('error', () => {}).on('close', () => b.destroy());
  }).listen(0, '127.0.0.1');
  await new Promise((done) => server.once('listening', done));
  return server;
}
