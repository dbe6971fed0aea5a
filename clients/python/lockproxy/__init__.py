"""Locks of lockproxy's for redis-py: `with lock(r, "orders") as held`. lockproxy.aio has the same for asyncio."""
from __future__ import annotations

import os
import threading
import time
import weakref
from types import TracebackType
from typing import Any, Callable, Optional, Type, Union

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from ._hold import Hold, Lost, NotAcquired, Steps, Terms, acquire, keep, release

__all__ = ["Hold", "Lock", "Lost", "NotAcquired", "lock"]
_pools: weakref.WeakKeyDictionary[Any, dict[float, redis.ConnectionPool]] = weakref.WeakKeyDictionary()
_guard = threading.Lock()


def _new_guard() -> None:
    global _guard
    _guard = threading.Lock()  # another thread may have had it when the process was forked


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_guard)


class Lock:
    """A lock of a name: `with lock(...) as held`, or acquire and release. One critical section at a time uses it.

    wait is in seconds: 0 asks once; without it this waits for ever. NotAcquired: somebody else had the lock for that long.

    The lock is a lease of that many seconds, of an owner of its own, renewed every third of it by a thread. With
    watched=True it is the connection's: the proxy renews it, it is free at once when the program dies, and lost when the connection
    breaks. fair=True takes it in the order in which it was asked for. limit=5: as many as five may hold it at once, and held.token is 0.

    Lost is raised at the end of the block if the lock was lost meanwhile. An error of the block's own is raised as it is.
    """

    def __init__(self, r: Union[redis.Redis, redis.RedisCluster], name: str, wait: Optional[float] = None, lease: float = 30.0, *,
                 watched: bool = False, fair: bool = False, limit: Optional[int] = None) -> None:
        if isinstance(r, (redis.asyncio.Redis, redis.asyncio.RedisCluster)):
            raise TypeError("this is a client of redis.asyncio: use `async with` and lockproxy.aio.lock")
        self._client, self._options = r, (name, wait, lease, watched, fair, limit)
        self._section: Optional[_Section] = None
        Terms(*self._options)

    def acquire(self) -> Hold:
        """Takes the lock. From then on it is renewed, until release."""
        return self._acquire(threading.Event())

    def release(self) -> None:
        """Gives the lock back, or raises Lost if it was lost."""
        section, self._section = self._section, None
        if section is None:
            raise RuntimeError("this Lock object has no lock to give back")
        if section.end():
            section.hold.check()

    def __enter__(self) -> Hold:
        over = threading.Event()
        # An interrupt may come where no block's end gives back what was granted: on the way into it, or out of it.
        weakref.finalize(self, over.set).atexit = False
        return self._acquire(over)

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        section, self._section = self._section, None
        if section is None:
            return  # the block has said release
        if isinstance(error, (redis.ConnectionError, redis.TimeoutError)):
            section.hold.leave()  # a write of the block's may still be on its way
        if section.end() and error is None:
            section.hold.check()

    def _acquire(self, over: threading.Event) -> Hold:
        if self._section is not None:
            raise RuntimeError("this Lock object is in use: make another for each critical section")
        terms = Terms(*self._options)
        self._section = _Section(terms, _pool_for(self._client, terms.patience), over)
        try:
            return self._section.begin()
        except BaseException:
            over.set()  # what is granted after that is given back
            self._section = None
            raise


lock = Lock


class _Section:
    """One critical section. A thread of its own asks all its questions, so no signal's exception comes between one and its answer."""

    def __init__(self, terms: Terms, pool: redis.ConnectionPool, over: threading.Event) -> None:
        self.terms, self.line = terms, _Line(pool)
        self.hold = Hold(terms.name, terms.owner, terms.lease, time.monotonic)
        self.told, self.over = threading.Event(), over
        self.error: Optional[BaseException] = None
        self.thread = threading.Thread(target=self._run, name=f"lock {terms.name}", daemon=True)

    def begin(self) -> Hold:
        """Returns when the lock is granted, or raises why it is not."""
        self.thread.start()
        self.told.wait()
        if self.error is None:
            return self.hold
        try:
            raise self.error
        finally:
            self.error = None  # which has this frame in its traceback

    def end(self) -> bool:
        """Ends the hold, and says whether it was lost. The child of a fork has no part in it."""
        lost = self.hold.lost
        if not self.hold._forked:
            self.over.set()
            self.thread.join()
        return lost or bool(self.hold._why)

    def _run(self) -> None:
        terms, hold = self.terms, self.hold
        try:
            _drive(acquire(terms, hold, time.monotonic, self.over.is_set), self.line, self.over.wait)
        except BaseException as error:
            self.error = error
            self.told.set()
        else:
            self.told.set()
            _drive(keep(terms, hold, time.monotonic), self.line, self.over.wait)
            self.over.wait()
        _drive(release(terms, hold), self.line, time.sleep)
        self.line.leave(terms.watched and hold._left)


class _Line:
    """The connection of one critical section. It is none of the program's pool, whose connections the block itself needs."""

    def __init__(self, pool: redis.ConnectionPool) -> None:
        self.pool = pool
        self.conn: Any = None

    def ask(self, words: list[Any]) -> Any:
        """Redis' answer; redis.ResponseError for its errors. After any other error the connection is closed."""
        if self.conn is None:
            self.conn = self.pool.get_connection()
        try:
            self.conn.send_command(*words)
            return self.conn.read_response()
        except redis.ResponseError:
            raise
        except BaseException:
            self.leave(True)  # the next question makes another
            raise

    def leave(self, close: bool) -> None:
        """Gives the connection back for the next critical section; close: closed."""
        conn, self.conn = self.conn, None
        if conn is not None:
            if close:
                conn.disconnect()
            self.pool.release(conn)


def _drive(steps: Steps, line: _Line, pause: Callable[[float], Any]) -> None:
    """Asks and pauses as steps say."""
    try:
        step = next(steps)
        while True:
            try:
                got = line.ask(step) if isinstance(step, list) else pause(step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(got)
    except StopIteration:
        pass


def _pool_for(r: Any, patience: float) -> redis.ConnectionPool:
    """The connections of this client's locks: made as its own are, as many as there are critical sections at once."""
    with _guard:
        pools = _pools.setdefault(r, {})
        if patience not in pools:
            like = r if hasattr(r, "connection_pool") else r.get_redis_connection(r.get_default_node())  # of a RedisCluster
            own = like.connection_pool
            settings = dict(own.connection_kwargs, socket_timeout=patience, retry=Retry(NoBackoff(), 0), retry_on_timeout=False,
                            socket_keepalive=True)
            pools[patience] = redis.ConnectionPool(connection_class=own.connection_class, **settings)
        return pools[patience]
