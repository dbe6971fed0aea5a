"""A lock of lockproxy's for programs with a connection pool."""
import contextlib
import threading
import time
import uuid

import redis


class Hold:
    """A lock in its holder's hands, with its fencing token."""

    def __init__(self, token, until):
        self.token, self.until, self.told = token, until, False

    @property
    def lost(self):
        """Redis has said so, or no renewal was confirmed in time. To be asked before each step that needs the lock."""
        return self.told or time.monotonic() >= self.until


@contextlib.contextmanager
def lock(r, name, wait_ms=4000, lease_s=30):
    """Holds the lock for as long as the block runs.

    TimeoutError: somebody else had it for wait_ms, which is to be below the client's socket_timeout. ResponseError at the end of
    the block: the lock was lost meanwhile.
    """
    owner, sent = uuid.uuid4().hex, time.monotonic()
    token = r.execute_command("LOCK", name, "OWNER", owner, "EX", lease_s, "BLOCK", wait_ms, "FENCE")
    if token is None:
        raise TimeoutError(name)
    hold, done, release = Hold(token, sent + lease_s), threading.Event(), True

    def renew():
        while not done.wait(lease_s / 3):
            sent = time.monotonic()
            try:
                r.execute_command("RENEW", name, "OWNER", owner, "EX", lease_s)
                hold.until = sent + lease_s  # from before it was sent: never later than Redis has it
            except redis.ResponseError:  # NOTHELD
                hold.told = True
                return
            except redis.RedisError:
                continue  # no answer: the lease has two more thirds

    heart = threading.Thread(target=renew, daemon=True)
    heart.start()
    try:
        yield hold
    except (redis.ConnectionError, redis.TimeoutError):
        release = False  # a write may still be on its way: the lock is left to expire
        raise
    finally:
        done.set()
        heart.join()
        if release:
            r.execute_command("UNLOCK", name, "OWNER", owner)
