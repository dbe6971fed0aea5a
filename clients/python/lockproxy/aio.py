"""Locks of lockproxy's for redis.asyncio: `async with lock(r, "orders") as held`. See lockproxy.lock for what the options mean."""
from __future__ import annotations

import asyncio
import time
import weakref
from types import TracebackType
from typing import Any, Optional, Type, Union

import redis as sync_redis
import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from ._hold import Hold, Lost, NotAcquired, Steps, Terms, acquire, keep, release

__all__ = ["Hold", "Lock", "Lost", "NotAcquired", "lock"]
_pools: weakref.WeakKeyDictionary[Any, dict[Any, redis.ConnectionPool]] = weakref.WeakKeyDictionary()
_ends: set[asyncio.Task[None]] = set()  # an event loop itself keeps no task


class Lock:
    """As lockproxy.Lock. A task renews the lease: a block that never awaits loses it, and held.lost says so by the clock."""

    def __init__(self, r: Union[redis.Redis, redis.RedisCluster], name: str, wait: Optional[float] = None, lease: float = 30.0, *,
                 watched: bool = False, fair: bool = False, limit: Optional[int] = None) -> None:
        if isinstance(r, (sync_redis.Redis, sync_redis.RedisCluster)):
            raise TypeError("this is a client for threads: use lockproxy.lock, or a client of redis.asyncio")
        self._client, self._options = r, (name, wait, lease, watched, fair, limit)
        self._section: Optional[_Section] = None
        Terms(*self._options)

    async def acquire(self) -> Hold:
        """Takes the lock. From then on it is renewed, until release. A wait that is cancelled gives back what it was granted."""
        if self._section is not None:
            raise RuntimeError("this Lock object is in use: make another for each critical section")
        self._section = _Section(Terms(*self._options))
        try:
            return await self._section.begin(self._client)
        except BaseException:
            self._section = None
            raise

    async def release(self) -> None:
        """Gives the lock back, or raises Lost if it was lost."""
        section, self._section = self._section, None
        if section is None:
            raise RuntimeError("this Lock object has no lock to give back")
        if await section.end():
            section.hold.check()

    async def __aenter__(self) -> Hold:
        return await self.acquire()

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        section, self._section = self._section, None
        if section is None:
            return  # the block has said release
        if isinstance(error, (redis.ConnectionError, redis.TimeoutError)):
            section.hold.leave()  # a write of the block's may still be on its way
        if await section.end() and error is None:
            section.hold.check()


lock = Lock


class _Section:
    """One critical section. Its questions are asked by tasks of its own: one that has begun is not cut off by the caller's cancelling."""

    def __init__(self, terms: Terms) -> None:
        self.terms, self.over = terms, False
        self.hold = Hold(terms.name, terms.owner, terms.lease, time.monotonic)
        self.heart: Optional[asyncio.Task[None]] = None

    async def begin(self, r: Any) -> Hold:
        """Returns when the lock is granted, or raises why it is not."""
        self.line = _Line(await _pool_for(r, self.terms.patience))
        steps = acquire(self.terms, self.hold, time.monotonic, lambda: self.over)
        self.taking = asyncio.create_task(_drive(steps, self.line))
        try:
            await asyncio.shield(self.taking)
        except BaseException:
            await self._finish(1)
            raise
        self.heart = asyncio.create_task(_drive(keep(self.terms, self.hold, time.monotonic), self.line))
        return self.hold

    async def end(self) -> bool:
        """Ends the hold, and says whether it was lost."""
        lost = self.hold.lost
        await self._finish(None)
        return lost or bool(self.hold._why)

    async def _finish(self, most: Optional[float]) -> None:
        """Gives the lock back. That goes on by itself when the caller is cancelled, and after so many seconds."""
        task = asyncio.create_task(self._give_back())
        _ends.add(task)
        task.add_done_callback(_ends.discard)
        try:
            await asyncio.wait([task], timeout=most)
        except asyncio.CancelledError:
            await self._give_back()  # asyncio.run, at its end, cancels all tasks, that one maybe before its first step
            raise

    async def _give_back(self) -> None:
        if self.over:
            return
        self.over, waits = True, not self.taking.done()
        if waits:
            await self.line.stop()
        if self.heart is not None:
            self.heart.cancel()
        for task in filter(None, (self.taking, self.heart)):
            await _settled(task)
        if waits:
            await self.line.leave(True)
        await _drive(release(self.terms, self.hold), self.line, firm=True)
        await self.line.leave(self.terms.watched and self.hold._left)


async def _settled(task: asyncio.Task[None]) -> None:
    """Waits for a task that is about to end."""
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
    if not task.cancelled():
        task.exception()  # else asyncio says that nobody has asked for it


class _Line:
    """The connection of one critical section. It is none of the program's pool, whose connections the block itself needs."""

    def __init__(self, pool: redis.ConnectionPool) -> None:
        self.pool = pool
        self.conn: Any = None
        self.waits = self.stopped = False

    async def ask(self, words: list[Any]) -> Any:
        """Redis' answer; redis.ResponseError for its errors. After any other error the connection is closed."""
        if self.conn is None:
            self.conn = await self.pool.get_connection()
        try:
            await self.conn.send_command(*words)
            if self.stopped:
                await self._quit()
            self.waits = True
            return await self.conn.read_response()
        except redis.ResponseError:
            raise
        except BaseException:
            await self.leave(True)  # the next question makes another
            raise
        finally:
            self.waits = False

    async def stop(self) -> None:
        """Ends the wait of a question that is under way, whose answer comes at once then. The connection is of no more use."""
        self.stopped = True
        if self.waits:
            await self._quit()

    async def _quit(self) -> None:
        try:
            await self.conn.send_command("QUIT", check_health=False)
        except (redis.RedisError, OSError, asyncio.CancelledError):
            pass  # the question fails, too

    async def leave(self, close: bool) -> None:
        """Gives the connection back for the next critical section; close: closed."""
        conn, self.conn, self.stopped = self.conn, None, False
        if conn is not None:
            if close:
                await conn.disconnect(nowait=True)
            await self.pool.release(conn)


async def _drive(steps: Steps, line: _Line, firm: bool = False) -> None:
    """Asks and pauses as steps say; firm: to the end, also when it is cancelled."""
    try:
        step = next(steps)
        while True:
            try:
                got = await (line.ask(step) if isinstance(step, list) else asyncio.sleep(step))
            except Exception as error:
                step = steps.throw(error)
            except asyncio.CancelledError:
                if not firm:
                    raise
                step = steps.throw(redis.ConnectionError("cancelled")) if isinstance(step, list) else next(steps)
            else:
                step = steps.send(got)
    except StopIteration:
        pass


async def _pool_for(r: Any, patience: float) -> redis.ConnectionPool:
    """The connections of this client's locks in this event loop: made as its own are, as many as there are critical sections at once."""
    if isinstance(r, redis.RedisCluster):
        await r.initialize()
        own = r.get_default_node()
    else:
        own = r.connection_pool
    loop, pools = asyncio.get_running_loop(), _pools.setdefault(r, {})
    for other, seconds in list(pools):
        if other.is_closed():
            del pools[other, seconds]
    if (loop, patience) not in pools:
        settings = dict(own.connection_kwargs, socket_timeout=patience, retry=Retry(NoBackoff(), 0), retry_on_timeout=False,
                        socket_keepalive=True)
        pools[loop, patience] = redis.ConnectionPool(connection_class=own.connection_class, **settings)
    return pools[loop, patience]
