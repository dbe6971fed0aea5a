"""Locks of lockproxy's for redis.asyncio: `async with lock(r, "orders") as held`. See lockproxy.lock for what the options mean."""
import asyncio
import contextlib
import logging
import time
import weakref

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from ._hold import UNLOCKS, Hold, Lost, NotAcquired, Terms, gone

__all__ = ["Hold", "Lost", "NotAcquired", "lock"]
log = logging.getLogger("lockproxy")
_pools = weakref.WeakKeyDictionary()


@contextlib.asynccontextmanager
async def lock(r, name, wait=10.0, lease=30.0, *, watched=False, fair=False):
    """As lockproxy.lock. A task renews the lease: a block that never awaits loses it, and held.lost says so by the clock."""
    terms = Terms(name, wait, lease, watched, fair)
    line = _Line(_pool_for(r, terms.patience))
    hold = Hold(name, terms.owner, terms.lease, time.monotonic)
    try:
        await _acquire(line, terms, hold)
    except BaseException:
        await line.drop()  # what was granted meanwhile is given back by the proxy, because its client has gone
        raise
    heart = asyncio.create_task(_renew(line, terms, hold))
    release = True
    try:
        yield hold
        hold.check()
    except (redis.ConnectionError, redis.TimeoutError):
        release = False  # a write of the block's may still be on its way: the lock is left to expire
        raise
    finally:
        heart.cancel()
        await asyncio.shield(_end(line, terms, hold, heart, release))  # also when the block was cancelled
    hold.check()  # UNLOCK may have said that the lock was gone


async def _end(line, terms, hold, heart, release):
    await asyncio.wait([heart])
    if release:
        await _release(line, terms, hold)
    await line.leave(terms.watched and not release)


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


async def _acquire(line, terms, hold):
    began, trouble = time.monotonic(), None
    while True:
        sent = time.monotonic()
        words, last = terms.lock(sent - began)
        try:
            token = await line.ask(words)
        except (redis.ConnectionError, redis.TimeoutError):
            # An idle connection may have been closed on the way, or the proxy is away: to ask again joins what was granted.
            trouble = trouble or (sent, min(sent + terms.patience, terms.end(began)))
            if sent > trouble[0] and time.monotonic() >= trouble[1]:
                raise
            await asyncio.sleep(terms.patience / 100)
            continue
        trouble = None
        if token is not None:
            hold.token = int(token)
            hold._answered(sent)
            return
        if last:
            raise NotAcquired(f"{terms.name}: somebody else has had it for {terms.wait} s")


async def _renew(line, terms, hold):
    confirmed = True
    while not hold.lost:
        await asyncio.sleep(terms.pause(confirmed))
        sent, confirmed = time.monotonic(), False
        try:
            await line.ask(terms.renew())
            confirmed = True
            hold._answered(sent)
        except redis.ResponseError as error:
            if gone(error):
                hold._gone(error)
        except (redis.RedisError, OSError) as error:
            if terms.watched:
                hold._gone(f"its connection was lost: {error}")


async def _release(line, terms, hold):
    """Gives the lock back. What fails here is no error of the block's: the lease ends by itself."""
    answered = True
    for left in reversed(range(1 if terms.watched else UNLOCKS)):
        try:
            return None if terms.watched and hold.lost else await line.ask(terms.unlock())
        except redis.ResponseError as error:
            if gone(error):
                return hold._gone(error) if answered else None  # else the UNLOCK before was done
            why = error
        except (redis.RedisError, OSError) as error:
            why, answered = error, False
        if left:
            await asyncio.sleep(terms.patience / 20)
    log.warning("%s was not given back and ends with its lease: %s", terms.name, why)


def _pool_for(r, patience):
    """The connections of this client's locks: made as its own are, as many as there are critical sections at once."""
    pools = _pools.setdefault(r, {})
    if patience not in pools:
        own = r.connection_pool
        settings = dict(own.connection_kwargs, socket_timeout=patience, retry=Retry(NoBackoff(), 0), retry_on_timeout=False,
                        socket_keepalive=True)
        pools[patience] = redis.ConnectionPool(connection_class=own.connection_class, **settings)
    return pools[patience]
