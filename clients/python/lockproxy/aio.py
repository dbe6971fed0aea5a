"""Locks of lockproxy's for redis.asyncio: `async with lock(r, "orders") as held`. See lockproxy.lock for what the options mean."""
import asyncio
import contextlib
import time
import weakref

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from ._hold import Hold, Lost, NotAcquired, Terms, acquire, keep, release

__all__ = ["Hold", "Lost", "NotAcquired", "lock"]
_pools = weakref.WeakKeyDictionary()


@contextlib.asynccontextmanager
async def lock(r, name, wait=None, lease=30.0, *, watched=False, fair=False):
    """As lockproxy.lock. A task renews the lease: a block that never awaits loses it, and held.lost says so by the clock."""
    terms = Terms(name, wait, lease, watched, fair)
    line = _Line(_pool_for(r, terms.patience))
    hold = Hold(name, terms.owner, terms.lease, time.monotonic)
    try:
        await _drive(acquire(terms, hold, time.monotonic), line)
    except BaseException:
        await line.drop()  # what was granted meanwhile is given back by the proxy, because its client has gone
        raise
    heart = asyncio.create_task(_drive(keep(terms, hold, time.monotonic), line))
    give_back = True
    try:
        yield hold
        hold.check()
    except (redis.ConnectionError, redis.TimeoutError):
        give_back = False  # a write of the block's may still be on its way: the lock is left to expire
        raise
    finally:
        heart.cancel()
        await asyncio.shield(_end(line, terms, hold, heart, give_back))  # also when the block was cancelled
    hold.check()  # UNLOCK may have said that the lock was gone


async def _end(line, terms, hold, heart, give_back):
    await asyncio.wait([heart])
    if give_back:
        await _drive(release(terms, hold), line)
    await line.leave(terms.watched and not give_back)


class _Line:
    """The connection of one critical section. It is none of the program's pool, whose connections the block itself needs."""

    def __init__(self, pool):
        self.pool, self.conn = pool, None

    async def ask(self, words):
        """Redis' answer; redis.ResponseError for its errors. After any other error the connection is closed."""
        if self.conn is None:
            self.conn = await self.pool.get_connection()
        try:
            await self.conn.send_command(*words)
            return await self.conn.read_response()
        except redis.ResponseError:
            raise
        except BaseException:
            await self.drop()
            raise

    async def drop(self):
        """Closes the connection. The next question makes another."""
        await self.leave(True)

    async def leave(self, close):
        """Gives the connection back for the next critical section; close: closed."""
        conn, self.conn = self.conn, None
        if conn is not None:
            if close:
                await conn.disconnect(nowait=True)
            await self.pool.release(conn)


async def _drive(steps, line):
    """Asks and pauses as steps say."""
    try:
        step = next(steps)
        while True:
            try:
                got = await (line.ask(step) if isinstance(step, list) else asyncio.sleep(step))
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(got)
    except StopIteration:
        pass


def _pool_for(r, patience):
    """The connections of this client's locks: made as its own are, as many as there are critical sections at once."""
    pools = _pools.setdefault(r, {})
    if patience not in pools:
        own = r.connection_pool
        settings = dict(own.connection_kwargs, socket_timeout=patience, retry=Retry(NoBackoff(), 0), retry_on_timeout=False,
                        socket_keepalive=True)
        pools[patience] = redis.ConnectionPool(connection_class=own.connection_class, **settings)
    return pools[patience]
