// A lock of lockproxy's for programs with a pool of connections.
import { randomUUID } from 'node:crypto';
import { AbortError, DisconnectsClientError, ErrorReply, SocketClosedUnexpectedlyError, SocketTimeoutError, TimeoutError } from 'redis';

// After these a write may still be on its way to Redis, as after the system's own errors, which have a code.
const unknown = [AbortError, DisconnectsClientError, SocketClosedUnexpectedlyError, SocketTimeoutError, TimeoutError];

// withLock holds the lock while work({ token, signal, lost }) runs, and returns what it returns. The signal aborts when the lock is
// lost; lost() is to be asked before each step that needs the lock. send sends a command: (words) => pool.sendCommand(words).
export async function withLock(send, name, work, { waitMs = 4000, leaseMs = 30000 } = {}) {
  const owner = randomUUID();
  const end = new AbortController();
  let until = performance.now() + leaseMs; // from before LOCK was sent: never later than Redis has it
  const token = await send(['LOCK', name, 'OWNER', owner, 'PX', `${leaseMs}`, 'BLOCK', `${waitMs}`, 'FENCE']);
  if (token === null) throw new Error(`${name}: somebody else held it for ${waitMs} ms`);

  const lost = () => end.signal.aborted || performance.now() >= until;
  const expiry = setInterval(() => lost() && end.abort(new Error(`${name}: not renewed in time`)), Math.min(100, leaseMs / 10));
  const heart = setInterval(async () => {
    const sent = performance.now();
    try {
      await send(['RENEW', name, 'OWNER', owner, 'PX', `${leaseMs}`]);
      until = Math.max(until, sent + leaseMs);
    } catch (error) {
      if (error instanceof ErrorReply) end.abort(error); // NOTHELD; without an answer the lease has two more thirds
    }
  }, leaseMs / 3);

  let release = true;
  try {
    return await work({ token, signal: end.signal, lost });
  } catch (error) {
    release = typeof error?.code !== 'string' && !unknown.some((kind) => error instanceof kind);
    throw error; // if it is left, the lock expires
  } finally {
    clearInterval(expiry);
    clearInterval(heart);
    if (release) await send(['UNLOCK', name, 'OWNER', owner]); // NOTHELD: it was lost meanwhile
  }
}
