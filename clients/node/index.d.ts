/** Somebody else had the lock for as long as the caller was willing to wait. */
export class NotAcquired extends Error {}
/** The lock was lost while it was held: somebody else may have it. */
export class Lost extends Error {}
/** A question to Redis has had no answer in time. */
export class NoAnswer extends Error {}

export interface Options {
  /** How long to wait for somebody else's lock, in whole ms: 0 asks once. Without it the wait has no end. */
  waitMs?: number;
  /** After this the lock is free if the program has died, in whole ms, at least 1,000. It is renewed every third of it. 30,000 at first. */
  leaseMs?: number;
  /** No lease: the proxy renews the lock, which is the connection's, and gives it back at once when that ends. */
  watched?: boolean;
  /** First come, first served, Redisson's fair waiters included. */
  fair?: boolean;
  /** So many may hold the lock at once. Not with fair. */
  limit?: number;
  /** Ends the wait. What is granted after that is given back. */
  signal?: AbortSignal;
}

export interface Held {
  /** The fencing token, which rises with each holder; 0 of a lock with a limit, which has none. */
  readonly token: number;
  /** host:process:uuid, as LOCKINFO shows it; '' of a watched lock. */
  readonly owner: string;
  /** Aborts, with a Lost as its reason, when the lock is lost. */
  readonly signal: AbortSignal;
  /** Whether somebody else may have the lock. Ask before each step that needs it. Once true it stays so. */
  lost(): boolean;
  /** Throws Lost if the lock was lost. */
  check(): void;
  /** Leaves the lock to its lease: release will only end its renewals. For a write that has had no answer, and may still be on its way. */
  leave(): void;
}

/** What acquire returns. */
export interface Acquired extends Held {
  /** Gives the lock back, once. Rejects with Lost if it was lost. */
  release(): Promise<void>;
}

/** A client or a cluster's client of node-redis, or of ioredis. */
export interface RedisClient { duplicate(...options: any[]): any }

/** Holds the lock while work runs, and resolves to what that returns. Rejects with NotAcquired, Lost, or the error of work as it is. */
export function withLock<T>(client: RedisClient, name: string, work: (held: Held) => T | Promise<T>, options?: Options): Promise<T>;

/** Takes the lock, which is renewed until release. Rejects with NotAcquired. */
export function acquire(client: RedisClient, name: string, options?: Options): Promise<Acquired>;
