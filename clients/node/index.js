// Locks of lockproxy's for node-redis and ioredis: withLock takes a lock, runs a function, and gives the lock back.
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';

/** Somebody else had the lock for as long as the caller was willing to wait. */
export class NotAcquired extends Error { name = 'NotAcquired'; }

/** The lock was lost while it was held: somebody else may have it. */
export class Lost extends Error { name = 'Lost'; }

/** A question to Redis has had no answer in time. */
export class NoAnswer extends Error { name = 'NoAnswer'; }

const watchedThird = 5000; // ms between questions about a lock that the proxy watches
const unlocks = 4; // how often UNLOCK is asked while Redis or the proxy is away
const most = 2 ** 31 - 1; // ms that a timer can wait

/**
 * Holds the lock while work({ token, owner, signal, lost, check }) runs, and returns what that returns. README.md has the options.
 * client is one of node-redis or ioredis; the locks have connections of their own, made as its is.
 */
export async function withLock(client, name, work, options = {}) {
  if (typeof work !== 'function') throw new TypeError('withLock(client, name, work, options): work is a function');
  const held = await acquire(client, name, options);
  let result;
  try {
    result = await work(held);
    held.check();
  } catch (error) {
    if (broken(error)) held.leave(); // a write may still be on its way
    await held.release().catch(ignore);
    throw error;
  }
  await held.release(); // UNLOCK may say that the lock is gone
  return result;
}

/** Takes the lock, which is renewed until release() is called. */
export async function acquire(client, name, options = {}) {
  const section = new Section(name, checked(options));
  const line = new Line(idle(client), section.third);
  const hold = await section.acquire(line, options.signal);
  const kept = section.keep(line, hold);
  let left = false, ended;
  const end = async () => {
    hold.end();
    await kept;
    if (!left) await section.release(line, hold);
    if (left && section.endsWithItsConnection) line.drop();
    line.leave();
    hold.check();
  };
  const held = {
    token: hold.token, owner: section.owner, signal: hold.signal, lost: () => hold.lost, check: () => hold.check(),
    leave: () => { left = true; }, release: () => ended ??= end(),
  };
  if (Symbol.asyncDispose) held[Symbol.asyncDispose] = held.release;
  return held;
}

const known = ['waitMs', 'leaseMs', 'watched', 'fair', 'limit', 'signal'];

// checked is the options, if they are what they may be.
function checked(options) {
  if (options === null || typeof options !== 'object') throw new TypeError(`options are an object with ${known}`);
  for (const [key, value] of Object.entries(options)) {
    if (value === undefined) continue;
    if (key === 'waitMs' || key === 'leaseMs') {
      if (typeof value !== 'number') throw new TypeError(`${key} is a number of milliseconds`);
      if (!Number.isSafeInteger(value) && !(key === 'waitMs' && value === Infinity)) throw new RangeError(`${key} is a whole number`);
    } else if (key === 'watched' || key === 'fair') {
      if (typeof value !== 'boolean') throw new TypeError(`${key} is true or false`);
    } else if (key === 'limit') {
      if (typeof value !== 'number') throw new TypeError('limit is a number of holders');
      if (!Number.isSafeInteger(value) || value < 1) throw new RangeError('limit is a whole number, one or more');
    } else if (key === 'signal') {
      if (!(value instanceof AbortSignal)) throw new TypeError('signal is an AbortSignal');
    } else {
      throw new TypeError(`there is no option ${key}, but ${known}`);
    }
  }
  return options;
}

// Section is the words of one critical section, which do not change, so that each may be said again.
class Section {
  // unheard: a LOCK has had no answer, and Redis may have granted it, or may yet.
  unheard = false;

  constructor(name, { waitMs = Infinity, leaseMs = 30_000, watched = false, fair = false, limit }) {
    if (typeof name !== 'string' && !Buffer.isBuffer(name)) throw new TypeError('a lock has a name');
    if (!(leaseMs >= 1000)) throw new RangeError('a lease below a second cannot be renewed in time');
    if (!(waitMs >= 0)) throw new RangeError('waitMs is 0 (ask once), a number of ms, or Infinity');
    if (fair && limit !== undefined) throw new TypeError('a fair lock has no limit');
    const verb = fair ? 'FAIRLOCK' : 'LOCK';
    this.owner = watched ? '' : `${hostname()}:${process.pid}:${randomUUID()}`;
    const mine = ['OWNER', this.owner], lease = ['PX', `${leaseMs}`];
    this.lock = [verb, name, ...(limit === undefined ? ['FENCE'] : ['LIMIT', `${limit}`]), ...(watched ? ['SELF'] : [...mine, ...lease])];
    this.renew = ['RENEW', name, ...(watched ? [] : [...mine, ...lease])];
    this.unlock = ['UNLOCK', name, ...(watched ? [] : mine)];
    Object.assign(this, { name, waitMs, endsWithItsConnection: watched, leaseMs: watched ? Infinity : leaseMs });
    // No question takes longer than a third of the lease: two thirds are left at the grant.
    this.third = watched ? watchedThird : leaseMs / 3;
  }

  // acquire asks until the lock is granted or the wait is over. What is granted after that is given back.
  async acquire(line, signal) {
    signal?.throwIfAborted();
    let stop;
    const aborted = new Promise((_, reject) => { stop = () => reject(signal.reason); });
    signal?.addEventListener('abort', stop);
    const taking = this.ask(line, signal);
    try {
      return await Promise.race([taking, aborted]);
    } catch (error) {
      this.giveBack(taking, line, signal?.aborted ? line.stop() : ignore);
      throw signal?.aborted ? signal.reason : error;
    } finally {
      signal?.removeEventListener('abort', stop);
    }
  }

  // giveBack gives back what was granted to a wait that has ended, or may have been.
  async giveBack(taking, line, close) {
    const hold = await taking.catch(ignore);
    close();
    hold?.end();
    if (hold || this.unheard && !this.endsWithItsConnection) await this.release(line, hold);
    line.leave();
  }

  async ask(line, signal) {
    const began = performance.now();
    let answered = began, trouble = false;
    for (;;) {
      signal?.throwIfAborted();
      const sent = performance.now(), left = this.waitMs - (sent - began), block = Math.min(left, this.third * 3 / 4);
      this.unheard = true;
      try {
        const token = await line.ask(block > 0 ? [...this.lock, 'BLOCK', `${Math.ceil(block)}`] : this.lock);
        this.unheard = false;
        if (token !== null) return new Hold(this, token === 'OK' ? 0 : Number(token), sent);
        if (block >= left) throw new NotAcquired(`${this.name}: somebody else has had it for ${this.waitMs} ms`);
        [answered, trouble] = [performance.now(), false];
      } catch (error) {
        if (error instanceof NotAcquired) throw error;
        if (isReply(error)) {
          this.unheard = error.message.includes('the reply to this LOCK was lost');
          if (/^(ERR )?unknown command/.test(error.message)) throw new Error(`this is no lockproxy: ${error.message}`, { cause: error });
          throw error;
        }
        // An idle connection may have been closed on the way, or the proxy is away: to ask again joins what was granted.
        const now = performance.now();
        if (trouble && (now - answered >= this.third || now - began >= this.waitMs)) throw error;
        trouble = true;
        await sleep(this.third / 100);
      }
    }
  }

  // keep renews the lease until the hold ends.
  async keep(line, hold) {
    let pause = this.third;
    while (!hold.lost && await hold.pause(pause)) { // a timer may come a moment too soon
      const sent = performance.now();
      pause = this.third / 4;
      try {
        await line.ask(this.renew);
        hold.answered(sent);
        pause = this.third;
      } catch (error) {
        if (this.gone(error)) hold.lose(error);
      }
    }
  }

  // gone: the error means that the lock is not held. Of a lease only Redis can say so.
  gone(error) { return isReply(error) ? /^(NOTHELD|LOCKLOST)/.test(error.message) : this.endsWithItsConnection; }

  // release gives the lock back. If that cannot be done it ends with its lease. Without a hold: a LOCK without an answer may have
  // taken it, or may yet, since UNLOCK comes over another connection.
  async release(line, hold) {
    let answered = true; // an UNLOCK that has had no answer may have been done
    for (let i = 1; i <= unlocks; i++) {
      try {
        await line.ask(this.unlock);
        return;
      } catch (error) {
        if (hold && this.gone(error)) {
          if (answered) hold.lose(error);
          return;
        }
        answered &&= isReply(error);
        if (i < unlocks) await sleep(hold ? this.third / 20 : this.third / 800 * 4 ** i);
      }
    }
  }
}

// Hold is a lock in its holder's hands.
class Hold {
  #end = new AbortController();
  #over = new AbortController();
  #until;
  #timer;

  constructor(section, token, sent) {
    Object.assign(this, { section, token, signal: this.#end.signal });
    this.answered(sent);
  }

  // answered: Redis has confirmed the lease, which counts from before the question was sent. What was lost stays lost.
  answered(sent) {
    if (this.#end.signal.aborted || this.#over.signal.aborted) return;
    this.#until = sent + this.section.leaseMs;
    clearTimeout(this.#timer);
    const left = Math.ceil(this.#until - performance.now()) + 1;
    this.#timer = setTimeout(() => this.lost, Math.min(most, Math.max(0, left)));
  }

  get lost() {
    const over = this.#over.signal.aborted;
    if (!over && performance.now() >= this.#until) this.lose(new Error('no renewal was confirmed in time'));
    return this.#end.signal.aborted;
  }

  check() { if (this.lost) throw this.#end.signal.reason; }

  // lose: the first cause counts.
  lose(cause) { this.#end.abort(new Lost(`${this.section.name}: ${cause.message}`, { cause })); }

  // end: the work is over, and says whether the lock was lost. From now on the clock says nothing.
  end() {
    const lost = this.lost;
    this.#over.abort();
    clearTimeout(this.#timer);
    return lost;
  }

  // pause waits for so many ms; false: the hold has ended.
  async pause(ms) {
    try {
      await sleep(ms, undefined, { signal: AbortSignal.any([this.#over.signal, this.#end.signal]) });
      return true;
    } catch {
      return false;
    }
  }
}

// Line is the connection of one section. It is none of the client's: waiters must not hold up, or use up, what a holder needs.
class Line {
  #conn = null;

  constructor(pool, patience) { Object.assign(this, { pool, patience }); }

  // ask resolves to Redis' answer. After an error that is no reply the next question uses another connection.
  async ask(words) {
    let timer;
    const late = new Promise((_, reject) => {
      const error = new NoAnswer(`${words[0]}: no answer within ${Math.round(this.patience)} ms`);
      timer = setTimeout(() => reject(error), this.patience);
    });
    try {
      return await Promise.race([late, this.#send(words)]);
    } catch (error) {
      if (!isReply(error)) this.drop();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  async #send(words) {
    this.#conn ??= this.#kept() ?? this.pool.open();
    return (await this.#conn).send(words);
  }

  // kept is a connection that another section has left, and that has not been closed meanwhile.
  #kept() {
    for (let conn; (conn = this.pool.free.pop()) !== undefined;) {
      if (conn.alive()) return conn;
      conn.close();
    }
    return null;
  }

  // stop ends the wait of a LOCK that is under way, whose answer comes at once then, and returns what closes its connection.
  stop() {
    const conn = this.#take();
    conn.then((c) => c?.send(['QUIT'])).catch(ignore);
    return () => conn.then((c) => c?.close()).catch(ignore);
  }

  drop() { this.#take().then((c) => c?.close()).catch(ignore); } // it may be closed already

  // leave keeps the connection for another section, for as long as the client is open.
  leave() { this.#take().then((c) => c && (this.pool.ended() ? c.close() : this.pool.free.push(c))).catch(ignore); }

  async #take() {
    const conn = this.#conn;
    this.#conn = null;
    return conn;
  }
}

const pools = new WeakMap();

// idle is the connections for a client's locks: made as its own are, as many as there are sections at once, closed with it.
function idle(client) {
  if (!pools.has(client)) {
    const pool = { free: [], ...(typeof client?.call === 'function' ? ioredis(client) : nodeRedis(client)) };
    const close = () => { if (pool.ended()) for (const conn of pool.free.splice(0)) conn.close(); };
    for (const event of ['end', 'node-disconnect']) client.on(event, close); // node-redis' cluster has the second alone
    pools.set(client, pool);
  }
  return pools.get(client);
}

const ignore = () => {}; // the question that fails says so

function ioredis(client) {
  const open = async () => {
    const c = (await ioredisNode(client)).duplicate({
      lazyConnect: true, retryStrategy: () => null, maxRetriesPerRequest: 0, enableOfflineQueue: false, keepAlive: 1000,
    });
    c.on('error', ignore);
    await c.connect();
    c.stream?.unref?.();
    return { send: (words) => c.call(...words), alive: () => c.status === 'ready', close: () => c.disconnect() };
  };
  return { open, ended: () => client.status === 'end' };
}

// ioredisNode is the client itself, or that of a node of a cluster's.
async function ioredisNode(client) {
  if (!client.isCluster) return client;
  if (client.status === 'wait') await client.connect();
  if (client.status !== 'ready') await once(client, 'ready');
  return client.nodes('master')[0];
}

function nodeRedis(client) {
  if (typeof client?.duplicate !== 'function') {
    throw new TypeError('locks make their own connections like those of a client: give createClient(options), not a pool');
  }
  const open = async () => {
    const node = typeof client.nodeClient === 'function' ? await client.nodeClient(client.masters[0]) : client;
    const c = node.duplicate({ disableOfflineQueue: true, socket: { ...node.options?.socket, reconnectStrategy: false } });
    c.on('error', ignore);
    await c.connect();
    c.unref?.();
    return { send: (words) => c.sendCommand(words), alive: () => c.isReady, close: () => c.isOpen && c.destroy() };
  };
  return { open, ended: () => !client.isOpen };
}

// isReply: an error is Redis' own reply. Both libraries name it so.
function isReply(error) {
  return ['ReplyError', 'ErrorReply', 'SimpleError', 'BlobError'].includes(error?.constructor?.name);
}

const brokenCodes = new Set(['ECONNABORTED', 'ECONNREFUSED', 'ECONNRESET', 'EHOSTUNREACH', 'ENETUNREACH', 'EPIPE', 'ETIMEDOUT', 'NR_CLOSED']);
const brokenKinds = new Set(['AbortError', 'DisconnectsClientError', 'SocketClosedUnexpectedlyError', 'SocketTimeoutError', 'TimeoutError',
  'ClientClosedError', 'MaxRetriesPerRequestError', 'NoAnswer']);

// broken: a command of the work's may still be on its way to Redis.
function broken(error) {
  return brokenCodes.has(error?.code) || brokenKinds.has(error?.constructor?.name) || error?.message === 'Connection is closed.';
}
