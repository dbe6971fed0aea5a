"""Locks of lockproxy's for redis-py: `with lock(r, "orders") as held`. lockproxy.aio has the same for asyncio."""
import contextlib
import threading
import time
import weakref

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ._hold import Hold, Lost, NotAcquired, Terms, acquire, keep, release

__all__ = ["Hold", "Lost", "NotAcquired", "lock"]
_pools, _guard = weakref.WeakKeyDictionary(), threading.Lock()


@contextlib.contextmanager
def lock(r, name, wait=None, lease=30.0, *, watched=False, fair=False):
    """Holds a lock while the block runs, and gives the block a Hold.

    wait is in seconds: 0 asks once; without it this waits for ever. NotAcquired: somebody else had the lock for that long.

    The lock is a lease of that many seconds, of an owner of its own, renewed every third of it by a thread. With
    watched=True it is the connection's: the proxy renews it, it is free at once when the program dies, and lost when the connection
    breaks. fair=True takes it in the order in which it was asked for.

    Lost is raised at the end of the block if the lock was lost meanwhile. An error of the block's own is raised as it is.
    """
    terms = Terms(name, wait, lease, watched, fair)
    line = _Line(_pool_for(r, terms.patience))
    hold = Hold(name, terms.owner, terms.lease, time.monotonic)
    try:
        _drive(acquire(terms, hold, time.monotonic), line)
    except BaseException:
        line.drop()  # what was granted meanwhile is given back by the proxy, because its client has gone
        raise
    done = threading.Event()
    heart = threading.Thread(target=_drive, args=(keep(terms, hold, time.monotonic), line, done.wait), name=f"lock {name}", daemon=True)
    heart.start()
    give_back = True
    try:
        yield hold
        hold.check()
    except (redis.ConnectionError, redis.TimeoutError):
        give_back = False  # a write of the block's may still be on its way: the lock is left to expire
        raise
    finally:
        done.set()
        heart.join()
        if give_back:
            _drive(release(terms, hold), line)
        line.leave(terms.watched and not give_back)
    hold.check()  # UNLOCK may have said that the lock was gone


class _Line:
    """The connection of one critical section. It is none of the program's pool, whose connections the block itself needs."""

    def __init__(self, pool):
        self.pool, self.conn = pool, None

    def ask(self, words):
        """Redis' answer; redis.ResponseError for its errors. After any other error the connection is closed."""
        if self.conn is None:
            self.conn = self.pool.get_connection()
        try:
            self.conn.send_command(*words)
            return self.conn.read_response()
        except redis.ResponseError:
            raise
        except BaseException:
            self.drop()
            raise

    def drop(self):
        """Closes the connection. The next question makes another."""
        self.leave(True)

    def leave(self, close):
        """Gives the connection back for the next critical section; close: closed."""
        conn, self.conn = self.conn, None
        if conn is not None:
            if close:
                conn.disconnect()
            self.pool.release(conn)


def _drive(steps, line, pause=time.sleep):
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


def _pool_for(r, patience):
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
