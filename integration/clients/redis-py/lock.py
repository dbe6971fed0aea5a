"""A lock of lockproxy's for programs with a connection pool."""
import contextlib
import threading
import uuid

import redis


@contextlib.contextmanager
def lock(r, name, wait_ms=4000, lease_s=30):
    """Holds the lock for as long as the block runs; yields an Event that is set when the lock was lost meanwhile.

    The lock ends lease_s seconds after its last RENEW, whatever becomes of the pool's connections. TimeoutError: somebody
    else had it for wait_ms, which is to be below the client's socket_timeout.
    """
    owner, done, lost = uuid.uuid4().hex, threading.Event(), threading.Event()
    if not r.execute_command("LOCK", name, "OWNER", owner, "ONCE", "EX", lease_s, "BLOCK", wait_ms):
        raise TimeoutError(name)

    def renew():
        while not done.wait(lease_s / 3):
            try:
                r.execute_command("RENEW", name, "OWNER", owner, "EX", lease_s)
            except redis.ResponseError:  # LOCKLOST, NOTHELD
                lost.set()
                return
            except redis.RedisError:
                continue  # no answer: the lease has two more thirds

    heart = threading.Thread(target=renew, daemon=True)
    heart.start()
    try:
        yield lost
    finally:
        done.set()
        heart.join()
        r.execute_command("UNLOCK", name, "OWNER", owner)
